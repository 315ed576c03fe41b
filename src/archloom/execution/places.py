"""Where jobs run: the values of `--on`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from archloom.core.errors import SettingError
from archloom.execution.executors import Executor, SerialExecutor
from archloom.execution.process_executor import ProcessExecutor
from archloom.execution.ray_executor import RayExecutor, find_address
from archloom.execution.slurm_executor import SlurmExecutor

PROCESSES = "processes"


def is_remote(on: str) -> bool:
    """Return whether jobs run on other machines, or may."""
    return on not in (PROCESSES, "serial")


def shared_folder(folder: Path, on: str) -> Path:
    """Return a folder as every machine names it: those of a cluster have other working directories."""
    return folder.absolute() if is_remote(on) else folder


def make_executor(
    on: str, *, workers: Callable[[], int], most: int | None = None, place: Path, shared: Sequence[object] = ()
) -> Executor:
    """Return what runs jobs at a place: on this machine, or on a cluster that sees the folder `place`.

    Args:
        on: processes, serial, ray, ray://HOST:PORT or slurm.
        workers: returns how many jobs this machine can run in parallel; not called for a cluster, whose machines may
            have devices that this one lacks.
        most: how many jobs the user wants at the same time at most.
        place: a folder for messages, which every machine sees.
        shared: values that many jobs hold; each machine gets them once.

    Raises:
        SettingError: If there is no such place.
    """
    if on == PROCESSES:
        return ProcessExecutor(most or workers(), shared=shared)
    if on == "serial":
        return SerialExecutor()
    if on == "ray" or on.startswith("ray://"):
        return RayExecutor(find_address(on), place, shared=shared, most=most)
    if on == "slurm":
        return SlurmExecutor(place, shared=shared, workers=most)
    raise SettingError(f"--on must be processes, serial, ray, ray://HOST:PORT or slurm, got '{on}'")
