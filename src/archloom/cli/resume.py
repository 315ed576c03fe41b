"""`archloom resume`: continue a run that was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from archloom.cli.compare import compare
from archloom.cli.console import print_warning
from archloom.cli.interactive import note_unless, run_interactively
from archloom.cli.joining import join_ranks
from archloom.cli.options import AnyRun, DataDir, Device, Devices, On, Quiet, Threads, data_settings, drop_unset
from archloom.cli.outcome import print_outcome
from archloom.cli.retrain import print_model
from archloom.cli.run import run
from archloom.core.errors import SettingError
from archloom.core.lazy_imports import lazy_imports
from archloom.core.run_kinds import Kind, require_kind

with lazy_imports():  # help needs no torch
    import archloom.api as api
    import archloom.execution.run_folder as run_folder
    import archloom.retrainings.folder as retrain_folder


def resume(
    folder: AnyRun,
    *,
    device: Device = None,
    threads: Threads = None,
    devices: Devices = 1,
    on: On = "processes",
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> None:
    """Continue an interrupted run exactly where it was saved; a complete one shows its result again.

    The end is the same as that of a run without an interruption. Options are for what may differ from before.
    """
    kind = require_kind(folder)
    if kind in ("comparison", "pipeline"):
        if devices != 1:
            raise SettingError(f"--devices is for one search or retraining, and {folder} is a {kind}; use --on instead")
        _resume_jobs(kind, folder, device=device, threads=threads, on=on, data_dir=data_dir, quiet=quiet)
        return
    joined = join_ranks(devices, device)
    quiet = quiet or not joined.is_first
    is_model = kind == "retraining"
    machine = {"device": joined.device, "torch_threads": threads}
    settings = drop_unset({"machine": machine, "data": data_settings(None, data_dir)})
    show: Any = print_model if is_model else print_outcome
    if (retrain_folder.RetrainFolder if is_model else run_folder.RunFolder).open(folder).finished:
        note_unless(quiet)(f"{folder} is complete; this is its result")
    run_interactively(
        lambda listener, stop: api.resume(
            folder,
            settings=settings,
            listeners=[listener],
            stop=stop,
            warn=print_warning,
            progress=False,
            on=on,
            ranks=joined.ranks,
        ),
        show,
        folder=folder,
        quiet=quiet,
    )


def _resume_jobs(
    kind: Kind, folder: Path, *, device: str | None, threads: int | None, on: str, data_dir: Path | None, quiet: bool
) -> None:
    """Continue a comparison or a pipeline as its own command does."""
    machine = {"device": device, "torch_threads": threads}
    sections = ("search", "retrain") if kind == "pipeline" else ("",)
    assigned = [
        f"{section}{'.' if section else ''}machine.{name}={value}"
        for section in sections
        for name, value in machine.items()
        if value is not None
    ]
    command = run if kind == "pipeline" else compare
    command(str(folder), data_dir=data_dir, assignments=assigned, on=on, quiet=quiet)
