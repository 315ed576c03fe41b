"""This machine: the only place that knows what a GPU is."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_doc import Doc

from archloom import fast as kernels
from archloom.core.errors import SettingError, require
from archloom.execution.executors import Resources
from archloom.execution.survey import usable_cores

MOST_THREADS = 1024  # a file must not start threads without end


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where a search runs."""

    device: Annotated[str, Doc("auto, cpu, cuda, cuda:1, mps")] = "auto"
    torch_threads: Annotated[int, Doc("threads of a torch operation; 0: as torch chooses")] = 0
    loader_threads: Annotated[int, Doc("threads that prepare batches ahead; 0: none")] = 1
    worker_processes: Annotated[
        int, Doc("processes that train finalists in parallel on a CPU, with one thread each; 0: one per torch thread")
    ] = 1
    kernels: Annotated[
        kernels.KernelChoice, Doc("auto: compiled if built; torch: fused; plain: modules; compile: torch.compile")
    ] = "auto"
    memory: Annotated[
        float | None,
        Doc("gigabytes: a plan that needs more is refused, a cluster reserves them; left out: what is free; 0: any"),
    ] = None
    recompute: Annotated[bool, Doc("compute fused cells again on the way back: less memory, more time")] = False

    def __post_init__(self) -> None:
        counts = {name: getattr(self, name) for name in ("torch_threads", "loader_threads", "worker_processes")}
        require(
            {
                f"machine.memory must be 0 (any) or more gigabytes, got {self.memory}": (
                    self.memory is None or self.memory >= 0
                ),
                **{
                    f"machine.{name} must lie in 0..{MOST_THREADS}, got {n}": 0 <= n <= MOST_THREADS
                    for name, n in counts.items()
                },
            }
        )

    @property
    def resources(self) -> Resources:
        """Return what one job on such a machine needs of a cluster."""
        cpus, gpus = max(1, self.torch_threads, self.worker_processes), int(self.device.startswith("cuda"))
        return Resources(cpus=cpus, gpus=gpus, memory_gb=self.memory or 0.0)

    def prepare(self) -> torch.device:
        """Set the number of threads, the kernels and how memory is kept, and pick the device."""
        if self.torch_threads:
            torch.set_num_threads(self.torch_threads)
        kernels.set_kernels(self.kernels, recompute=self.recompute)
        keep_memory()
        return pick_device(self.device)


def pick_device(name: str) -> torch.device:
    """Return the device of a name; `auto` takes a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise SettingError(f"machine.device must be auto, cpu, cuda, cuda:N or mps, got '{name}'") from error
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(device.type, False):
        raise SettingError(f"machine.device '{name}' is not available here; take 'cpu' or 'auto'")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise SettingError(f"machine.device '{name}' is not there: this machine has {torch.cuda.device_count()} GPUs")
    return device


def jobs_that_fit(machines: Sequence[Machine]) -> int:
    """Return how many jobs can run in parallel: as many as their torch threads leave cores for; one on a GPU."""
    if any(pick_device(machine.device).type != "cpu" for machine in machines):
        return 1  # several would share one GPU and its memory
    cores = usable_cores()
    return max(1, cores // max(machine.torch_threads or cores for machine in machines))


def peak_memory_mb(device: torch.device) -> float:
    """Return the most memory used so far: of the GPU if one is used, else of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    try:
        import resource
    except ImportError:  # not a POSIX system
        return 0.0
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes / 2**20 if sys.platform == "darwin" else kilobytes / 2**10  # macOS counts bytes


TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # the numbers that glibc's mallopt knows them by


def keep_memory(most: int = 2**30) -> bool:
    """Keep memory that a step frees in the process for the next step; return whether that could be set.

    The C library of Linux returns tensors of some megabytes to the system, which must then provide them again page by
    page, cleared: `benchmarks/speed.py --give-back` shows what that costs.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library than glibc
        return False
    done = [bool(mallopt(option, most)) for option in (MMAP_THRESHOLD, TRIM_THRESHOLD)]
    return all(done)
