"""This machine: the only place that knows what a GPU is."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch

from archloom.errors import SettingError, require


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where a search runs."""

    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    threads: int = 0  # 0 leaves it to torch
    workers: int = 1  # threads that prepare batches ahead

    def __post_init__(self) -> None:
        require(
            {
                f"machine.threads must be 0 or more, got {self.threads}": self.threads >= 0,
                f"machine.workers must be 0 or more, got {self.workers}": self.workers >= 0,
            }
        )

    def prepare(self) -> torch.device:
        """Set the number of threads and pick the device."""
        if self.threads:
            torch.set_num_threads(self.threads)
        return pick_device(self.device)


def pick_device(name: str) -> torch.device:
    """The device named; `auto` takes a GPU where there is one."""
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


def peak_memory_mb(device: torch.device) -> float:
    """The most memory used so far: of the GPU where there is one, else of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    try:
        import resource
    except ImportError:  # not a POSIX system
        return 0.0
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes / 2**20 if sys.platform == "darwin" else kilobytes / 2**10  # macOS counts bytes
