"""What a driver and its jobs on other machines exchange: files in a folder that all of them see.

Progress and the request to stop need no connection: a driver that looks at a file survives every machine that is lost.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from archloom.core.events import JobEnded, JobEvent, JobListener, JobProgressed
from archloom.core.files import ABANDONED, writing
from archloom.core.leases import waiting_for_leases
from archloom.execution.executors import Stop, attempt
from archloom.execution.loop import Interrupted
from archloom.execution.pickling import dump, load, run_pickled

SECONDS_BETWEEN_LOOKS = 1.0  # at the file that asks to stop, and at the files of progress
SECONDS_BETWEEN_PROGRESS = 2.0  # of one job
PREFIX = ".exchange-"


@dataclass(frozen=True)
class Exchange:
    """A folder for messages of one call of an executor."""

    folder: Path

    @classmethod
    def create(cls, place: Path) -> Exchange:
        """Make a folder inside a place that every machine sees."""
        made = cls(place.absolute() / f"{PREFIX}{secrets.token_hex(6)}")
        with writing(made.folder):
            made.folder.mkdir(parents=True)
            for old in place.absolute().glob(f"{PREFIX}*"):  # of drivers that died
                if old.stat().st_mtime < made.folder.stat().st_mtime - ABANDONED:
                    shutil.rmtree(old, ignore_errors=True)
        return made

    def remove(self) -> None:
        """Remove the folder; a job that still looks finds nothing."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def refresh(self) -> None:
        """Show that the driver lives: its jobs may wait for hours before they write anything."""
        with contextlib.suppress(OSError):
            os.utime(self.folder)

    def request_stop(self) -> None:
        """Ask all jobs to save and stop."""
        with writing(self.folder):
            (self.folder / "stop").touch()

    @property
    def is_stopping(self) -> bool:
        """Return whether jobs are asked to stop."""
        return (self.folder / "stop").exists()

    def write_share(self, number: int, share: float) -> None:
        """Say how much of a job is done; a message that is lost does not matter."""
        with contextlib.suppress(OSError):
            path = self.folder / f"job-{number}"
            new = path.with_suffix(".new")
            new.write_text(repr(share))
            new.replace(path)

    def read_share(self, number: int) -> float | None:
        """Return how much of a job is done, if it has said so."""
        try:
            return float((self.folder / f"job-{number}").read_text())
        except (OSError, ValueError):
            return None


@dataclass
class Throttle:
    """Ask a question at most once in so many seconds, and repeat the answer in between."""

    ask: Callable[[], bool]
    seconds: float = SECONDS_BETWEEN_LOOKS
    clock: Callable[[], float] = time.monotonic
    _asked: float | None = field(default=None, init=False)
    _answer: bool = field(default=False, init=False)

    def __call__(self) -> bool:
        now = self.clock()
        if self._asked is None or now >= self._asked + self.seconds:
            self._asked, self._answer = now, self.ask()
        return self._answer


@dataclass(frozen=True)
class RemoteCall:
    """A job on its way to another machine; calling it runs the job there and returns how it ended."""

    name: str
    number: int
    job: bytes
    exchange: Exchange

    def __call__(self, shared: bytes, stop: Stop = lambda: False) -> bytes:
        """Run the job; the lease of a machine that was lost while it ran the same job is waited for."""
        is_stopping = Throttle(lambda: self.exchange.is_stopping)
        latest = -SECONDS_BETWEEN_PROGRESS

        def emit(event: JobEvent) -> None:
            nonlocal latest
            now = time.monotonic()
            if isinstance(event, JobProgressed) and now >= latest + SECONDS_BETWEEN_PROGRESS:
                latest = now
                self.exchange.write_share(self.number, event.share)

        def run(listener: JobListener, stop: Stop) -> object:
            if stop():  # while it waited for a machine
                raise Interrupted
            return run_pickled(self.job, load(shared), listener, stop)

        with waiting_for_leases():
            ended = attempt(self.name, run, emit, lambda: stop() or is_stopping())
        return dump(ended)


def read_end(data: bytes) -> JobEnded:
    """Return how a job ended, from what its call returned."""
    ended = load(data)
    assert isinstance(ended, JobEnded)
    return ended
