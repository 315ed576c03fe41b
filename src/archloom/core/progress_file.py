"""How far a running loop is between two records: a small file for pages, replaced at most every other second.

It lies among the checkpoints, since it says nothing of a run that has ended. Replacing it leaves the run folder itself
unchanged, so readers that look for new files there have nothing to do.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from archloom.core.events import Advanced, Deriving, Event, Started
from archloom.core.files import check_guards
from archloom.core.json_object import JsonObject, from_json_object, to_json_object

MOST_UNITS = 2**53  # whole numbers beyond it are no exact floats
EVERY = 2.0  # seconds between two versions of the file


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How many units (steps or trials) are done, and how fast they are."""

    position: int
    total: int
    units_per_record: int
    seconds_per_unit: float | None = None  # since the run began or resumed; None before the first unit
    doing: str = ""  # after the last unit: how the result is being derived

    @property
    def seconds_left(self) -> float | None:
        """Return the time that the remaining units take at the same speed."""
        if self.seconds_per_unit is None:
            return None
        left = self.seconds_per_unit * max(0, self.total - self.position)
        return left if math.isfinite(left) else None  # a file may say anything

    def step_after(self, records: int) -> int:
        """Return how many units are done since the last of so many records."""
        return min(self.units_per_record, max(0, self.position - records * self.units_per_record))

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the progress that a JSON object holds; a ValueError where its numbers are beyond reason."""
        made = from_json_object(cls, value)
        for name, number in (("position", made.position), ("total", made.total), ("units", made.units_per_record)):
            if not 0 <= number <= MOST_UNITS:
                raise ValueError(f"{name} must lie in 0..{MOST_UNITS}")
        return made


def progress_path(run: Path) -> Path:
    """Return the place of the file in a run folder."""
    return run / "checkpoints" / "progress.json"


class ProgressWriter:
    """A listener that writes the progress of a run; `total` returns its units, which a budget may reduce."""

    def __init__(self, run: Path, total: Callable[[], int], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._total, self._clock = progress_path(run), total, clock
        self._first, self._position, self._units_per_record = 0, 0, 1
        self._begun = self._written = clock()

    def __call__(self, event: Event) -> None:
        """Write the file if the event is worth it."""
        now = self._clock()
        if isinstance(event, Started):
            self._first = self._position = event.position
            self._units_per_record, self._begun = event.units_per_record, now
            self._write(now)
        elif isinstance(event, Advanced):
            self._position = event.position
            if now - self._written >= EVERY:
                self._write(now)
        elif isinstance(event, Deriving):
            self._write(now, doing=event.what)

    def _write(self, now: float, *, doing: str = "") -> None:
        done = self._position - self._first
        progress = Progress(
            position=self._position,
            total=self._total(),
            units_per_record=self._units_per_record,
            seconds_per_unit=(now - self._begun) / done if done else None,
            doing=doing,
        )
        self._written = now
        with contextlib.suppress(OSError):  # a page may miss it; checkpoints report a disk that is full
            _replace(self._path, json.dumps(to_json_object(progress)).encode())

    def remove(self) -> None:
        """Remove the file, and its folder if nothing else is there: the run has ended or was interrupted."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
            self._path.parent.rmdir()


def _replace(path: Path, data: bytes) -> None:
    """Replace a file as a whole, without waiting for the disk: after a power cut nobody misses it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}@{socket.gethostname()}.tmp")
    path.parent.mkdir(exist_ok=True)
    try:
        temporary.write_bytes(data)
        check_guards(path)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
