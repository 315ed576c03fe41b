"""How well shared weights rank architectures, by a table of what each reaches when trained alone.

A one-shot search assumes that a path which scores well under shared weights scores well alone. Over a uniform sample
that is a rank correlation, with a confidence interval.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # loads its parts when they are used
from numpy.typing import NDArray

from archloom.benchmarks.analysis import is_in_space
from archloom.benchmarks.base import Benchmark, Column
from archloom.core.bootstrap import bootstrap_interval
from archloom.spaces import Architecture, SearchSpace

TOP_SHARE = 0.1  # of the table: whether very good ones rank above good ones
FEWEST = 5  # architectures that a correlation is computed from
RESAMPLES = 1000  # half a millisecond each

Numbers = NDArray[np.float64]
Coefficient = Callable[[Numbers, Numbers], float]


@dataclass(frozen=True)
class ScoredPath:
    """The two accuracies of one architecture, in percent."""

    text: str
    shared: float  # under the shared weights
    table: float  # in the table


@dataclass(frozen=True)
class Estimate:
    """A coefficient and its bootstrap confidence interval; None where the sample does not determine it."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class RankAgreement:
    """How far the two accuracies agree on the order of architectures."""

    count: int
    kendall: Estimate  # tau-b
    spearman: Estimate


@dataclass(frozen=True)
class RankQuality:
    """How well shared weights rank a sample of architectures."""

    all: RankAgreement
    top: RankAgreement  # those of the sample that are in the table's top tenth
    picked: ScoredPath | None  # the best of the sample by shared weights
    best: ScoredPath | None  # the best of the sample by the table
    regret: float | None  # of the picked one: points below the best of the whole table
    average: float | None  # of the sample, in the table


def sample_rows(table: Benchmark, space: SearchSpace, dataset: str, *, count: int, seed: int) -> list[int]:
    """Return distinct rows of the table, sampled uniformly from those in the space; all of them if there are fewer.

    The same seed gives the same architectures for every run.
    """
    rows = list(range(len(table.column(dataset))))
    random.Random(seed).shuffle(rows)
    inside = (row for row in rows if is_in_space(table.architecture(row), space))
    return [row for row, _ in zip(inside, range(count), strict=False)]


def score_rows(
    paths: Callable[[Architecture], float], space: SearchSpace, table: Benchmark, column: Column, rows: Sequence[int]
) -> Iterator[ScoredPath]:
    """Yield both accuracies of each row, one by one, since evaluating a path takes time."""
    for row in rows:
        architecture = space.check(table.architecture(row))
        yield ScoredPath(space.format(architecture), paths(architecture), float(column[row]))


def measure_rank_quality(scored: Sequence[ScoredPath], column: Column, *, seed: int = 0) -> RankQuality:
    """Return the figures of a sample; `column` has the same metric of all architectures of the table."""
    least = float(np.quantile(column, 1 - TOP_SHARE))
    picked = max(scored, key=lambda one: one.shared, default=None)
    return RankQuality(
        all=measure_agreement(scored, seed=seed),
        top=measure_agreement([one for one in scored if one.table >= least], seed=seed),
        picked=picked,
        best=max(scored, key=lambda one: one.table, default=None),
        regret=None if picked is None else float(column.max()) - picked.table,
        average=sum(one.table for one in scored) / len(scored) if scored else None,
    )


def measure_agreement(scored: Sequence[ScoredPath], *, seed: int = 0) -> RankAgreement:
    """Return both coefficients of a sample."""
    shared, table = (np.array(values, dtype=np.float64) for values in _columns(scored))
    return RankAgreement(
        count=len(scored),
        kendall=_estimate(lambda x, y: float(scipy.stats.kendalltau(x, y).statistic), shared, table, seed),
        spearman=_estimate(lambda x, y: float(scipy.stats.spearmanr(x, y).statistic), shared, table, seed),
    )


def _columns(scored: Sequence[ScoredPath]) -> tuple[list[float], list[float]]:
    return [one.shared for one in scored], [one.table for one in scored]


def _estimate(coefficient: Coefficient, shared: Numbers, table: Numbers, seed: int) -> Estimate:
    """Return a coefficient with its interval; architectures are resampled as pairs."""

    def coefficient_of(x: Numbers, y: Numbers) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of constant input
            return coefficient(x, y)

    def of_resample(x: Numbers, y: Numbers) -> float:
        value = coefficient_of(x, y)
        return 0.0 if math.isnan(value) else value  # a resample of equals shows no order

    value = coefficient_of(shared, table) if len(shared) >= FEWEST else math.nan
    if math.isnan(value):  # too few, or all equal
        return Estimate(None)
    low, high = bootstrap_interval(
        (shared, table), of_resample, resamples=RESAMPLES, seed=seed, paired=True, vectorized=False
    )
    finite = math.isfinite(low) and math.isfinite(high)
    return Estimate(value, float(low), float(high)) if finite else Estimate(value)
