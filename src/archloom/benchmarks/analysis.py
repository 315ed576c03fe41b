"""Analyse a whole space by its table: accuracies, effects of choices, costs. Without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from archloom.benchmarks.base import Benchmark, plain_number
from archloom.core.json_object import JsonObject
from archloom.spaces import Architecture, SearchSpace

QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
BINS = 12  # of a histogram in text
TAIL = 0.05  # share of the lowest values in the first bin
NEAR = 1.0  # points below the best that count as near it
COSTS = {"params": "parameters", "flops_M": "FLOPs, millions"}
COUNTABLE = 1_000_000  # the most architectures that are enumerated

Numbers = NDArray[np.float64]
_Name = tuple[str, str, int | None]  # of a column: data set, metric, epochs


class FrontPoint(TypedDict):
    """An architecture on a Pareto front, as JSON holds it."""

    text: str
    cost: float
    accuracy: float


# --- of numbers alone


def quantiles(values: Numbers) -> dict[str, float]:
    """Return quantiles by the share below: `{"0": ..., "0.01": ..., "1": ...}`."""
    found = np.quantile(values, QUANTILES)
    return {f"{share:g}": plain_number(value) for share, value in zip(QUANTILES, found, strict=True)}


def histogram(values: Numbers, *, bins: int = BINS) -> list[tuple[float, float, int]]:
    """Return (from, to, count) of each bin: the lowest 5 % in one bin, as failures are far below, then equal bins."""
    low, high = np.quantile(values, TAIL), values.max()
    edges = np.unique(np.concatenate([[values.min()], np.linspace(low, high, bins)]))
    counts, edges = np.histogram(values, bins=edges if len(edges) > 1 else 1)
    rounded = [plain_number(edge) for edge in edges]
    return [(start, end, int(count)) for start, end, count in zip(rounded, rounded[1:], counts, strict=False)]


def spearman(one: Numbers, other: Numbers) -> float | None:
    """Return the rank correlation, ties sharing a rank; None where one of them is constant.

    Own lines rather than scipy's, whose import alone would take longer than the whole command.
    """
    if min(np.ptp(one), np.ptp(other)) == 0:
        return None
    return plain_number(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: Numbers) -> Numbers:
    """Return the ranks; ties get their mean rank."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    ranks: Numbers = (last - (count - 1) / 2)[place]
    return ranks


def pareto_front(cost: Numbers, accuracy: Numbers) -> list[int]:
    """Return the positions on the Pareto front, the cheapest first; of ties, the first."""
    front, best = [], -np.inf
    for place in np.lexsort((-accuracy, cost)):
        if accuracy[place] > best:
            front.append(int(place))
            best = accuracy[place]
    return front


# --- of a table


@dataclass(frozen=True)
class Effect:
    """Hold the effect of one decision on accuracy."""

    decision: str
    means: Mapping[str, float]  # mean accuracy of all architectures that take an option
    explained: float  # share of the variance of accuracy that the choice accounts for by itself


class Analysis:
    """Analyse one data set of a table, for the architectures of a space."""

    def __init__(self, table: Benchmark, space: SearchSpace, dataset: str) -> None:
        self.table, self.space, self.dataset = table, space, dataset
        rows = range(len(table.column(dataset)))
        inside = [(row, architecture) for row in rows if is_in_space(architecture := table.architecture(row), space)]
        self.rows = np.array([row for row, _ in inside], dtype=np.int64)
        self.architectures: list[Architecture] = [architecture for _, architecture in inside]

    def column(self, metric: str = "test", *, dataset: str = "", epochs: int | None = None) -> Numbers:
        """Return a metric of the architectures of the space."""
        whole = self.table.column(dataset or self.dataset, metric=metric, epochs=epochs)
        return whole[self.rows].astype(np.float64)

    @cached_property
    def accuracy(self) -> Numbers:
        """Return the accuracy of every row."""
        return self.column()

    def near_best(self) -> int:
        """Count the architectures within one point of the best."""
        return int(np.count_nonzero(self.accuracy >= self.accuracy.max() - NEAR))

    def effects(self) -> list[Effect]:
        """Return how much accuracy depends on the options of each decision."""
        return [self._effect(decision.name, decision.options) for decision in self.space.decisions]

    def _effect(self, name: str, options: Sequence[str]) -> Effect:
        taken = np.array([architecture[name] for architecture in self.architectures])
        groups = {option: self.accuracy[taken == option] for option in options}
        groups = {option: values for option, values in groups.items() if len(values)}  # a partial table may lack some
        mean, total = self.accuracy.mean(), self.accuracy.var() * len(self.accuracy)
        between = sum(len(values) * (values.mean() - mean) ** 2 for values in groups.values())
        return Effect(
            name,
            {option: plain_number(values.mean()) for option, values in groups.items()},
            plain_number(between / total) if total > 0 else 0.0,
        )

    def agreements(self) -> list[tuple[str, str, float | None]]:
        """Return rank correlations: short and long training, validation and test, between data sets."""
        pairs: list[tuple[_Name, _Name]] = [
            ((dataset, "test", few), (dataset, "test", self.table.epochs[0]))
            for dataset in self.table.datasets
            for few in self.table.epochs[1:]
        ]
        full = self.table.epochs[0] if self.table.epochs else None
        pairs += [((dataset, "valid", full), (dataset, "test", full)) for dataset in self.table.datasets]
        pairs += [((one, "test", full), (other, "test", full)) for one, other in combinations(self.table.datasets, 2)]
        return [(_describe_column(one), _describe_column(other), self._correlation(one, other)) for one, other in pairs]

    def _correlation(self, one: _Name, other: _Name) -> float | None:
        columns = (self.column(metric, dataset=dataset, epochs=epochs) for dataset, metric, epochs in (one, other))
        return spearman(*columns)

    def costs(self) -> dict[str, Numbers]:
        """Return the costs that the table knows, by what they are."""
        return {name: self.column(metric) for metric, name in COSTS.items() if metric in self.table.metrics}

    def latencies(self, device: str) -> Numbers:
        """Return the latency of every row on a device, in milliseconds."""
        return self.table.latencies(device)[self.rows].astype(np.float64)

    def front(self, cost: Numbers) -> list[FrontPoint]:
        """Return the Pareto front of accuracy against a cost; architectures without a finite cost are left out."""
        known = np.flatnonzero(np.isfinite(cost))
        return [
            {
                "text": self.space.format(self.architectures[place]),
                "cost": plain_number(cost[place]),
                "accuracy": plain_number(self.accuracy[place]),
            }
            for place in (int(known[found]) for found in pareto_front(cost[known], self.accuracy[known]))
        ]

    def figures(self) -> JsonObject:
        """Return the whole analysis as plain values for JSON."""
        return {
            "cardinality": self.space.cardinality,
            "distinct": count_distinct(self.space),
            "decisions": {decision.name: list(decision.options) for decision in self.space.decisions},
            "table": self.table.name,
            "dataset": self.dataset,
            "architectures": len(self.rows),
            "accuracy": {
                "quantiles": quantiles(self.accuracy),
                "histogram": histogram(self.accuracy),
                "within_a_point_of_the_best": self.near_best(),
            },
            "effects": [asdict(effect) for effect in self.effects()],
            "rank_correlations": [
                {"one": one, "other": other, "spearman": value} for one, other, value in self.agreements()
            ],
            "costs": {name: quantiles(values) for name, values in self.costs().items()},
            "latencies": {device: quantiles(self.latencies(device)) for device in self.table.devices},
        }


def is_in_space(architecture: Mapping[str, str], space: SearchSpace) -> bool:
    """Return whether an architecture of the table lies in a space, which may have fewer options."""
    return all(architecture[decision.name] in decision.options for decision in space.decisions)


def _describe_column(column: _Name) -> str:
    dataset, metric, epochs = column
    return f"{dataset} {metric}" + (f", {epochs} epochs" if epochs else "")


def count_distinct(space: SearchSpace) -> int | None:
    """Return the number of architectures up to isomorphism, or None if the space is too large or has no rule for it."""
    canonical = getattr(space, "canonical", None)
    if canonical is None or space.cardinality > COUNTABLE:
        return None
    return len({canonical(architecture) for architecture in space.enumerate()})
