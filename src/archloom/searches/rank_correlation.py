"""How well shared weights order architectures, told by a table that knows what each reaches when trained by itself.

A one-shot search stands on the belief that a path which does well under shared weights does well alone. Over a uniform
sample that is a rank correlation, and it has an error bar.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archloom.benchmarks.analysis import belongs
from archloom.benchmarks.base import Benchmark, Column
from archloom.core.bootstrap import bootstrap_interval
from archloom.spaces import Architecture, SearchSpace

TOP_SHARE = 0.1  # of the table: whether good ones are told from very good ones
FEWEST = 5  # architectures that a correlation is computed from
RESAMPLES = 1000  # half a millisecond each

Numbers = NDArray[np.float64]
Coefficient = Callable[[Numbers, Numbers], float]


@dataclass(frozen=True)
class Judged:
    """One architecture by both judges, in percent."""

    text: str
    shared: float  # under the shared weights
    known: float  # in the table


@dataclass(frozen=True)
class Estimate:
    """A coefficient and its bootstrap confidence interval; None where the sample does not determine it."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Order:
    """How far two judges agree on the order of so many architectures."""

    count: int
    kendall: Estimate  # tau-b
    spearman: Estimate


@dataclass(frozen=True)
class RankQuality:
    """What a sample says of shared weights as a judge."""

    all: Order
    top: Order  # those of the sample that are in the table's top tenth
    picked: Judged | None  # the best of the sample by shared weights
    best: Judged | None  # the best of the sample by the table
    regret: float | None  # of the picked one: points below the best of the whole table
    average: float | None  # what one of the sample reaches in the table on average


def sampled_rows(table: Benchmark, space: SearchSpace, dataset: str, *, count: int, seed: int) -> list[int]:
    """Rows of the table, distinct, drawn uniformly from those that lie in the space; all of them if there are fewer.

    A seed draws the same architectures for every run, so that runs are compared on the same ones.
    """
    rows = list(range(len(table.column(dataset))))
    random.Random(seed).shuffle(rows)
    inside = (row for row in rows if belongs(table.architecture(row), space))
    return [row for row, _ in zip(inside, range(count), strict=False)]


def judged_rows(
    paths: Callable[[Architecture], float], space: SearchSpace, table: Benchmark, column: Column, rows: Sequence[int]
) -> Iterator[Judged]:
    """Each row by both judges, one by one, since the first judge takes its time."""
    for row in rows:
        architecture = space.check(table.architecture(row))
        yield Judged(space.format(architecture), paths(architecture), float(column[row]))


def rank_quality(judged: Sequence[Judged], column: Column, *, seed: int = 0) -> RankQuality:
    """The figures of a sample; `column` holds the same metric for all architectures of the table."""
    least = float(np.quantile(column, 1 - TOP_SHARE))
    picked = max(judged, key=lambda one: one.shared, default=None)
    return RankQuality(
        all=order(judged, seed=seed),
        top=order([one for one in judged if one.known >= least], seed=seed),
        picked=picked,
        best=max(judged, key=lambda one: one.known, default=None),
        regret=None if picked is None else float(column.max()) - picked.known,
        average=sum(one.known for one in judged) / len(judged) if judged else None,
    )


def order(judged: Sequence[Judged], *, seed: int = 0) -> Order:
    """Both coefficients of a sample."""
    from scipy import stats  # takes a second to import, which a search need not wait for

    shared, known = (np.array(values, dtype=np.float64) for values in _columns(judged))
    return Order(
        count=len(judged),
        kendall=_estimate(lambda x, y: float(stats.kendalltau(x, y).statistic), shared, known, seed),
        spearman=_estimate(lambda x, y: float(stats.spearmanr(x, y).statistic), shared, known, seed),
    )


def _columns(judged: Sequence[Judged]) -> tuple[list[float], list[float]]:
    return [one.shared for one in judged], [one.known for one in judged]


def _estimate(coefficient: Coefficient, shared: Numbers, known: Numbers, seed: int) -> Estimate:
    """Architectures are resampled as pairs."""

    def measured(x: Numbers, y: Numbers) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of constant input
            return coefficient(x, y)

    def of_resample(x: Numbers, y: Numbers) -> float:
        drawn = measured(x, y)
        return 0.0 if math.isnan(drawn) else drawn  # a resample of equals shows no order

    value = measured(shared, known) if len(shared) >= FEWEST else math.nan
    if math.isnan(value):  # too few, or a judge that gives all the same order
        return Estimate(None)
    low, high = bootstrap_interval(
        (shared, known), of_resample, resamples=RESAMPLES, seed=seed, paired=True, vectorized=False
    )
    finite = math.isfinite(low) and math.isfinite(high)
    return Estimate(value, float(low), float(high)) if finite else Estimate(value)
