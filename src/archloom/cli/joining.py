"""One run on several devices, as a command begins it; a run in one process needs no torch for this."""

from __future__ import annotations

import os
from dataclasses import dataclass

from archloom.core.lazy_imports import lazy_imports

with lazy_imports():  # a typing error is answered without torch
    import archloom.execution.launch as launch
    import archloom.supernet.ranks as supernet_ranks


@dataclass(frozen=True)
class Joined:
    """This process among those of a run, and the device that it uses."""

    device: str | None
    found: supernet_ranks.Ranks | None = None  # None: there is no other process

    @property
    def is_first(self) -> bool:
        """Return whether this process prints."""
        return self.found is None or self.found.is_first

    @property
    def ranks(self) -> supernet_ranks.Ranks:
        """Return the ranks of the run."""
        return supernet_ranks.ALONE if self.found is None else self.found


def join_ranks(devices: int, device: str | None) -> Joined:
    """Return this process among its ranks; with `--devices` above 1, continue as torchrun instead."""
    if devices == 1 and os.environ.get("WORLD_SIZE", "1") == "1":
        return Joined(device)
    found = launch.start_or_join(devices, device)
    return Joined(launch.device_of(found, device), found)
