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
    """A run begins, or resumes at `position` of `total` units ('step' or 'trial').

    Attributes:
        unit: what is counted, `step` or `trial`.
        position: units done before.
        total: units of the whole run.
        units_per_record: steps of an epoch; 1 for trials.
        history: records of a resumed run.

    Examples:
        >>> import archloom
        >>> def listen(event: archloom.Event) -> None:
        ...     if isinstance(event, archloom.Started):
        ...         print(event.unit, event.total)
        >>> listen(archloom.Started("trial", 0, 20, 1, ()))
        trial 20
    """

    unit: str
    position: int
    total: int
    units_per_record: int
    history: tuple[Record, ...]


@dataclass(frozen=True)
class Advanced:
    """One step or trial is done.

    Attributes:
        position: units done.
        images: images that the unit trained on.
        metrics: figures of the unit by name.

    Examples:
        >>> import archloom
        >>> def listen(event: archloom.Event) -> None:
        ...     if isinstance(event, archloom.Advanced):
        ...         print(event.position, event.metrics)
        >>> listen(archloom.Advanced(7, 64, {"train_loss": 0.5}))
        7 {'train_loss': 0.5}
    """

    position: int
    images: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Recorded:
    """An epoch or trial is complete.

    Attributes:
        record: the record of the epoch or trial, as in `SearchResult.history`.

    Examples:
        >>> import archloom
        >>> result = archloom.resume("runs/first")
        >>> archloom.Recorded(result.history[0]).record.epoch
        0
    """

    record: Record


@dataclass(frozen=True)
class Noted:
    """One part of long work at the end is done; a resumed search skips the parts that were noted.

    Attributes:
        record: what was noted, as a JSON object.

    Examples:
        >>> import archloom
        >>> def listen(event: archloom.Event) -> None:
        ...     if isinstance(event, archloom.Noted):
        ...         print(event.record)
        >>> listen(archloom.Noted({"finalist": 1}))
        {'finalist': 1}
    """

    record: JsonObject


@dataclass(frozen=True)
class Deriving:
    """The last unit is done; `what` says how the result is being derived.

    Attributes:
        what: how the result is being derived.

    Examples:
        >>> import archloom
        >>> def listen(event: archloom.Event) -> None:
        ...     if isinstance(event, archloom.Deriving):
        ...         print(event.what)
        >>> listen(archloom.Deriving("racing 4 finalists"))
        racing 4 finalists
    """

    what: str


@dataclass(frozen=True)
class Planning:
    """A line of the plan that a search makes before it starts.

    Attributes:
        line: what will be done, and how long it should take.

    Examples:
        >>> import archloom
        >>> def listen(event: archloom.Event) -> None:
        ...     if isinstance(event, archloom.Planning):
        ...         print(event.line)
        >>> listen(archloom.Planning("finalist race: 24 networks"))
        finalist race: 24 networks
    """

    line: str


Event = Planning | Started | Advanced | Recorded | Noted | Deriving
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
class JobLogged:
    """A job wrote a line that a log would have: an epoch with its figures and the time left, or the next phase."""

    job: str
    line: str


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


JobEvent = JobStarted | JobProgressed | JobLogged | JobEnded
JobListener = Callable[[JobEvent], None]
