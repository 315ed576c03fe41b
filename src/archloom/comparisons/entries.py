"""What the searches of one entry of a comparison found, over all seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

from archloom.core.json_object import JsonObject, from_json_object, to_json_object
from archloom.core.metrics import ACCURACY, METRICS, Metric

Timing = Literal["measured", "looked up", "by seconds_per_trial", "unknown"]
"""Where the seconds of an entry come from: looking a score up takes next to no time. Old files do not say."""


@dataclass(frozen=True)
class SeedResult:
    """What the search with one seed found, and what it cost."""

    seed: int
    text: str
    value: float | None  # of the metric; None where a partial table lacks the architecture, or nothing was learned
    tests: Mapping[str, float]  # by data set of the table
    regret: float | None
    seconds: float
    trainings: float
    alone: float | None = None  # of what the search alone derived, where a finalist race decided and a table knows it
    curve: tuple[float, ...] = ()  # of a one-shot search: test accuracy of the derived architecture after every epoch

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the object that a record holds."""
        return from_json_object(cls, value)


@dataclass(frozen=True)
class EntryResult:
    """An entry of a comparison: the results of its finished searches."""

    name: str
    strategy: str
    black_box: bool
    metric: str
    datasets: tuple[str, ...]  # of the table, that of the searches first; empty without a table
    results: tuple[SeedResult, ...]
    seeds: int  # that the comparison asks for
    timing: Timing = "measured"
    failures: Mapping[str, str] = field(default_factory=dict)  # the reason, by run
    figure: str = ACCURACY.name  # what the values are: an accuracy in percent, or a perplexity

    @property
    def measure(self) -> Metric:
        """Return how values are named and ranked."""
        return METRICS.get(self.figure, ACCURACY)

    @property
    def values(self) -> list[float]:
        """Return the compared value of every seed that has one."""
        return [result.value for result in self.results if result.value is not None]

    def best(self, values: Sequence[float]) -> float | None:
        """Return the best of some values."""
        return max(values, key=lambda value: self.measure.direction * value, default=None)

    def worst(self, values: Sequence[float]) -> float | None:
        """Return the worst of some values."""
        return min(values, key=lambda value: self.measure.direction * value, default=None)

    def tests(self, dataset: str) -> list[float]:
        """Return the test accuracies on a data set."""
        return [result.tests[dataset] for result in self.results if dataset in result.tests]

    @property
    def alone(self) -> list[float]:
        """Return the value of what each search alone derived, before a finalist race decided."""
        return [result.alone for result in self.results if result.alone is not None]

    @property
    def cells(self) -> int:
        """Return the number of different architectures that the searches found."""
        return len({result.text for result in self.results})

    @property
    def seconds(self) -> float | None:
        """Return the mean time of a search, or None without searches."""
        return mean_of([result.seconds for result in self.results])

    @property
    def trainings(self) -> float | None:
        """Return the mean number of trained architectures, or None without searches."""
        return mean_of([result.trainings for result in self.results])

    @property
    def regrets(self) -> list[float]:
        """Return the regret of every seed that has one."""
        return [result.regret for result in self.results if result.regret is not None]

    def to_json(self) -> JsonObject:
        """Return what `from_json` reads, apart from the name and the figures that follow from the results."""
        return {
            "black_box": self.black_box,
            "datasets": list(self.datasets),
            "timing": self.timing,
            "failures": dict(self.failures),
            "figure": self.figure,
            "runs": [to_json_object(result) for result in self.results],
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return an entry; files of the first edition lack what kind of search it is, data sets and timing."""
        results = tuple(map(SeedResult.from_json, value["runs"]))
        tables = dict.fromkeys(name for result in results for name in result.tests)
        trained = any(result.trainings for result in results)
        return cls(
            name=str(value["entry"]),
            strategy=str(value["strategy"]),
            black_box=bool(value.get("black_box", trained)),
            metric=str(value["metric"]),
            datasets=tuple(map(str, value.get("datasets", tables))),
            results=results,
            seeds=int(value["seeds"]),
            timing=_read_timing(value.get("timing", "unknown")),
            failures={str(run): str(reason) for run, reason in value["failures"].items()},
            figure=str(value.get("figure", ACCURACY.name)),
        )


def _read_timing(value: Any) -> Timing:
    if value not in get_args(Timing):
        raise ValueError(f"timing must be one of {', '.join(get_args(Timing))}, got {value!r}")
    timing: Timing = value
    return timing


def mean_of(values: Sequence[float]) -> float | None:
    """Return the mean, or None without values."""
    return statistics.mean(values) if values else None


def deviation_of(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation, or None of fewer than two values."""
    return statistics.stdev(values) if len(values) > 1 else None
