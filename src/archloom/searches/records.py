"""Records of a search: what is known after an epoch or a trial, and the parts of its result.

Each type has one writer (`to_json`) and one reader (`from_json`). Readers accept the names of the first edition, too:
`standing` (now `table_entry`), `scores` (`probabilities`), `worth` (`reward`) and `pursued` (`strict`); and those of
scores while all were accuracies: `derived_accuracy` (`derived_score`), `valid_accuracy` (`valid_score`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from archloom.benchmarks.base import TableEntry
from archloom.core.errors import CheckpointError, one_line
from archloom.core.json_object import JsonObject, from_json_object, to_json_object
from archloom.core.metrics import ACCURACY, METRICS, Metric
from archloom.core.score_names import rename_scores
from archloom.spaces import Architecture

_FIRST_EDITION = {"standing": "table_entry", "scores": "probabilities", "worth": "reward", "pursued": "strict"}
_USUAL_METRIC = ("metric", ACCURACY.name)  # not worth its place in a line
COST_METRIC = "cost"  # of the derived architecture, where the search has a target


@dataclass(frozen=True, kw_only=True)
class Health:
    """What the monitor measured after an epoch."""

    skip: float  # share of the derived operations that are skips
    none: float
    pool: float
    entropy: float | None = None  # mean over decisions, of the option probabilities
    entropy_least: float | None = None
    gap: float | None = None  # score of the mixture minus that of the derived architecture
    eigenvalue: float | None = None  # the largest of the logits' Hessian
    alarm: str | None = None  # why the monitor warns

    @property
    def status(self) -> str:
        """Return `skips 17 %, eigenvalue 0.12`, for a progress line."""
        shares = {"skips": self.skip, "pools": self.pool, "none": self.none}
        parts = [f"{name} {100 * share:.0f} %" for name, share in shares.items() if share]
        return ", ".join([*parts, *([] if self.eigenvalue is None else [f"eigenvalue {self.eigenvalue:.2g}"])])

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the record that a JSON object holds."""
        return from_json_object(cls, value, partial=True)


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """One epoch of a one-shot search, with the architecture that the search would return if it ended here."""

    epoch: int
    seconds: float
    images_per_second: float
    memory_mb: float
    metrics: Mapping[str, float]  # what the strategy reports, averaged over the epoch
    learning_rate: float
    derived_score: float  # of the architecture under the shared weights, from 0 to 1
    probabilities: Mapping[str, Sequence[float]] | None  # of the options of every decision
    architecture: Architecture
    text: str
    table_entry: TableEntry | None
    health: Health | None = None
    stage: str = ""  # where a search has several: `stage 2/3, 11 cells`
    metric: str = ACCURACY.name  # what `derived_score` is a score of: 1 / perplexity, where it is no accuracy

    @property
    def position(self) -> int:
        """Return the number of the epoch."""
        return self.epoch

    @property
    def measure(self) -> Metric:
        """Return how the score is named and printed."""
        return METRICS.get(self.metric, ACCURACY)

    @property
    def status(self) -> str:
        """Return the stage and the state of the monitor for a progress line, or ''."""
        return ", ".join(part for part in (self.stage, "" if self.health is None else self.health.status) if part)

    @property
    def warning(self) -> str:
        """Return the alarm of the monitor as a line for the terminal, or ''."""
        alarm = None if self.health is None else self.health.alarm
        return f"warning: epoch {self.epoch + 1}: {alarm}" if alarm else ""

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the record that a JSON object holds."""
        return from_json_object(cls, _rename(value), partial=True)

    def to_json(self) -> JsonObject:
        """Return the record as a line of metrics.jsonl."""
        usual = (("stage", ""), _USUAL_METRIC)
        return {name: value for name, value in to_json_object(self).items() if (name, value) not in usual}


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """One trial of a black-box search."""

    trial: int
    score: float
    best: float  # score so far; with a target, of the trials that meet it
    epochs: int = 0  # that the trial was trained for
    pruned: bool = False  # stopped early: its score does not compare with others
    trainings: float  # what all trials so far cost, in full trainings
    seconds: float
    architecture: Architecture
    text: str
    table_entry: TableEntry | None
    reward: float | None = None  # with a target: the score minus the penalty for missing it
    cost: float | None = None  # with a target: in its unit
    met: bool | None = None  # with a target: whether this architecture meets it
    metric: str = ACCURACY.name  # what scores are of, in percent: 100 / perplexity, where it is no accuracy

    status = warning = ""  # the scores of a trial are in its events

    @property
    def position(self) -> int:
        """Return the number of the trial."""
        return self.trial

    @property
    def measure(self) -> Metric:
        """Return how scores are named and printed."""
        return METRICS.get(self.metric, ACCURACY)

    @property
    def merit(self) -> tuple[bool, float]:
        """Return the order of trials: those that meet the target by score, then the others by reward."""
        if self.met is False:
            assert self.reward is not None
            return False, self.reward
        return True, self.score

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the record that a JSON object holds."""
        return from_json_object(cls, {"trainings": value["trial"] + 1, **_rename(value)}, partial=True)

    def to_json(self) -> JsonObject:
        """Return the record as a line of metrics.jsonl."""
        return {name: value for name, value in to_json_object(self).items() if (name, value) != _USUAL_METRIC}


SearchRecord = EpochRecord | TrialRecord


def read_record(value: JsonObject) -> SearchRecord:
    """Return the record that a line of metrics.jsonl holds.

    Raises:
        CheckpointError: If the line is no record of a search.
    """
    try:
        return TrialRecord.from_json(value) if "trial" in value else EpochRecord.from_json(value)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"a search record is damaged ({type(error).__name__}: {one_line(error)})") from error


# --- parts of a result


@dataclass(frozen=True)
class FinalistRecord:
    """How an architecture did in a short training of the finalist race."""

    text: str  # '' until the race is over: a short training does not know how the space writes an architecture
    architecture: Architecture
    steps: int
    valid_loss: float | None  # None where the training diverged
    valid_score: float  # from 0 to 1
    parameters: int
    origin: str = ""  # why it took part: `derived`, `random`, `proposal`, the name of a reference; '' in old files
    repeat: int = 0  # the number of its seed
    correct: str = ""  # for each held-out image whether it is correct, as `pack_bits` writes it
    examples: tuple[float, ...] = ()  # instead of it, where an example has a figure: higher is better
    seconds: float = 0.0

    def rank_by(self, size: float) -> float:
        """Return the figure to rank by, lower is better: the loss less `size` times the logarithm of the parameters."""
        loss = math.inf if self.valid_loss is None else self.valid_loss
        return loss - size * math.log(max(self.parameters, 1))

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the record that a JSON object holds."""
        return from_json_object(cls, {"text": "", **rename_scores(value)})


@dataclass(frozen=True)
class EarlyStop:
    """Why the monitor ended a search early, after which epoch, and the epoch that the result stands for."""

    reason: str
    after_epoch: int
    as_of_epoch: int

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the record that a JSON object holds."""
        return cls(str(value["reason"]), int(value["after_epoch"]), int(value["as_of_epoch"]))

    @property
    def sentence(self) -> str:
        """Return when and why the search stopped, in words."""
        back = "" if self.as_of_epoch == self.after_epoch else f" The result is that of epoch {self.as_of_epoch}."
        return f"The monitor stopped the search after epoch {self.after_epoch}: {self.reason}.{back}"


@dataclass(frozen=True)
class StrictSteps:
    """Extra steps of the architecture parameters alone, with frozen weights, to meet a missed target."""

    steps: int
    most_steps: int
    beta: float  # the last one used
    met: bool


@dataclass(frozen=True, kw_only=True)
class TargetResult:
    """How the final architecture does by the target of the search."""

    value: float
    unit: str
    source: str
    cost: float
    miss: float  # relative to the target; below 0 is too cheap
    met: bool
    reward: str
    beta: float
    binding_beta: float | None  # the beta that sampled architectures suggest, where the target is missed
    sentence: str
    strict: StrictSteps | None = None

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the record that a JSON object holds."""
        return from_json_object(cls, _rename(value))


def _rename(value: JsonObject) -> JsonObject:
    """Return a record with the names of today."""
    return {new: value[old] for old, new in _FIRST_EDITION.items() if old in value} | dict(rename_scores(value))


@dataclass(frozen=True, kw_only=True)
class LimitResult:
    """What the final architecture costs, and the limit that it keeps to."""

    value: float
    unit: str
    source: str
    cost: float
    sentence: str

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the record that a JSON object holds."""
        return from_json_object(cls, value)
