"""How much memory a plan needs: measured on a few images, and carried over to all of them.

A plan that does not fit is refused before it starts. Otherwise the system kills it, perhaps after hours. Shapes on the
meta device would tell what plain modules keep, several times what fused cells keep. So the real step runs, on two small
batches: the bytes of its tensors grow in proportion to the images.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from archloom.core.errors import SettingError
from archloom.core.memory import available_memory

GIGABYTE = 2**30
SMALL_BATCHES = (4, 8)  # images; with fewer some kernels choose another way
SMALL_COLUMNS = (16, 24)  # of a text: with fewer, evaluations need more memory than steps, and do not grow
UNSEEN = 1.4  # times the tensors: buffers of convolutions, and gaps between tensors
WORKER = 400 * 2**20  # bytes of a process with torch loaded
STATUS_FILE = Path("/proc/self/statm")


class MemoryMeter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Counts the bytes of all tensors that are made within the context: now, and at most."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._known: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        for value in made if isinstance(made, list | tuple) else (made,):
            if isinstance(value, Tensor):
                self._count(value.untyped_storage())
        return made

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage in self._known:
            return
        self._known.add(storage)
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, size).atexit = False

    def _forget(self, size: int) -> None:
        self.now -= size


def extrapolate_peak(run: Callable[[int], object], images: int, *, small: tuple[int, int] = SMALL_BATCHES) -> int:
    """Return the bytes that `run(images)` needs at most, by running it with a few images: the numbers in `small`."""
    peaks = []
    for count in small:
        with MemoryMeter() as meter:
            run(count)
        peaks.append(meter.peak)
    few, many = small
    slope = max(0.0, (peaks[1] - peaks[0]) / (many - few))
    return int(UNSEEN * max(peaks[0], peaks[0] + slope * (images - few)))


def resident_memory() -> int:
    """Return the bytes that this process holds now; 0 where the system does not say it."""
    try:
        return int(STATUS_FILE.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):  # not Linux
        return 0


def memory_limit(gigabytes: float | None) -> int | None:
    """Return the bytes that a run may hold: a number of gigabytes, or what the system has free; None: not known."""
    if gigabytes is not None:
        return int(gigabytes * GIGABYTE)
    free = available_memory()
    return None if free is None else free + resident_memory()


def refuse_too_large(needed: Mapping[str, int], limit: int, *, remedy: str) -> None:
    """Raise a SettingError if the parts of a plan need more bytes together than the limit allows."""
    total = sum(needed.values())
    if total > limit:
        parts = ", ".join(f"{name} {size / GIGABYTE:.1f}" for name, size in needed.items())
        raise SettingError(
            f"the plan needs about {total / GIGABYTE:.1f} GB of memory ({parts}), and machine.memory allows "
            f"{limit / GIGABYTE:.1f} GB; {remedy}, or set machine.memory = 0 to try it all the same"
        )
