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
    value: float | None  # of the metric; None if a partial table does not hold the architecture
    tests: Mapping[str, float]  # by data set of the table
    regret: float | None
    seconds: float
    trainings: float
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
    measured_in: str = ACCURACY.name  # what values are: accuracies in percent, or perplexities

    @property
    def measure(self) -> Metric:
        """Return how values are named, and which of them are better."""
        return METRICS.get(self.measured_in, ACCURACY)

    @property
    def best(self) -> float | None:
        """Return the best value of all seeds."""
        return (max if self.measure.higher_is_better else min)(self.values, default=None)

    @property
    def worst(self) -> float | None:
        """Return the worst value of all seeds."""
        return (min if self.measure.higher_is_better else max)(self.values, default=None)

    @property
    def values(self) -> list[float]:
        """Return the compared value of every seed that has one."""
        return [result.value for result in self.results if result.value is not None]

    def tests(self, dataset: str) -> list[float]:
        """Return the test accuracies on a data set."""
        return [result.tests[dataset] for result in self.results if dataset in result.tests]

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
            "measured_in": self.measured_in,
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
            measured_in=str(value.get("measured_in", ACCURACY.name)),
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
