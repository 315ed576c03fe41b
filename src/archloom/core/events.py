"""Events that runs and executors emit; listeners are progress bars, metrics files, TensorBoard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from archloom.core.json_object import JsonObject


class Record(Protocol):
    """One line of metrics.jsonl: an epoch of a one-shot search or of a retraining, or a trial of a black-box search."""

    @property
    def status(self) -> str:
        """Return a few figures for a progress line, or ''."""

    @property
    def warning(self) -> str:
        """Return a warning for the terminal, or ''."""

    def to_json(self) -> JsonObject:
        """Return the record as a JSON object."""


@dataclass(frozen=True)
class Started:
    """A run begins, or resumes at `position` of `total` units ('step' or 'trial')."""

    unit: str
    position: int
    total: int
    units_per_record: int
    history: tuple[Record, ...]


@dataclass(frozen=True)
class Advanced:
    """One step or trial is done."""

    position: int
    images: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Recorded:
    """An epoch or trial is complete."""

    record: Record


@dataclass(frozen=True)
class Noted:
    """One part of long work at the end is done; a resumed search skips the parts that were noted."""

    record: JsonObject


@dataclass(frozen=True)
class Deriving:
    """The last unit is done; `what` says how the result is being derived."""

    what: str


Event = Started | Advanced | Recorded | Noted | Deriving
Listener = Callable[[Event], None]


# --- events of executors


@dataclass(frozen=True)
class Failure:
    """Why a job failed: one line, and the traceback of an error that nobody expected."""

    message: str
    details: str = ""


@dataclass(frozen=True)
class JobStarted:
    """An executor starts a job, or starts it again."""

    job: str


@dataclass(frozen=True)
class JobProgressed:
    """This share of a job is done."""

    job: str
    share: float


@dataclass(frozen=True)
class JobEnded:
    """A job is done, was stopped on request, or failed; a failed one may be retried.

    A job that keeps its results in a folder returns None, a small job returns its result.
    """

    job: str
    result: Any = None  # whatever the job returns
    failure: Failure | None = None
    stopped: bool = False
    retrying: bool = False


JobEvent = JobStarted | JobProgressed | JobEnded
JobListener = Callable[[JobEvent], None]
