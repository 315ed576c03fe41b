"""Split the variance of results: how much searches differ, and how much retrainings of one architecture differ.

A one-way analysis of variance with random effects: a result is a mean, plus an effect of its search, plus an effect of
its training. The estimates come from equated mean squares, also for unequal numbers of trainings.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import scipy  # loads its parts when they are used

from archloom.core.metrics import ACCURACY, Metric


@dataclass(frozen=True)
class VarianceSplit:
    """Standard deviations in the unit of the values; None where they cannot be estimated."""

    searches: int
    trainings: int
    mean: float
    total: float | None  # of all values
    between: float | None  # of searches
    within: float | None  # of trainings of one architecture
    p: float | None  # of the F test that searches differ at all
    unit: str = ACCURACY.difference_unit  # what follows a deviation

    @property
    def sentence(self) -> str:
        """Return what the figures show, in words."""
        if self.between is not None and self.within is not None:
            if self.between == 0:
                beginning = "Searches differ no more than retrainings of one architecture"
            else:
                beginning = f"Searches differ by ±{self.between:.2f}"
            test = "" if self.p is None else f"; test of a difference between searches: p = {self.p:.3f}"
            return (
                f"{beginning}, retrainings of one architecture by ±{self.within:.2f} {self.unit} (standard deviations, "
                f"{self.searches} searches, {self.trainings} retrainings{test})."
            )
        if self.within is not None:
            return (
                f"Retrainings of one architecture differ by ±{self.within:.2f} {self.unit} (standard deviation of "
                f"{self.trainings}). Only one search was retrained, so the spread of searches is unknown."
            )
        if self.total is not None:
            return (
                f"Results differ by ±{self.total:.2f} {self.unit} (standard deviation of {self.trainings}). Each "
                "search was retrained once, so the spread of searches and that of retrainings cannot be separated."
            )
        return "One result has no spread."


def split_variance(groups: Sequence[Sequence[float]], metric: Metric = ACCURACY) -> VarianceSplit:
    """Return the spread of results, given a group per search with the results of its trainings."""
    groups = [group for group in groups if group]
    values = [value for group in groups for value in group]
    between, within = _estimate_components(groups)
    return VarianceSplit(
        searches=len(groups),
        trainings=len(values),
        mean=statistics.mean(values) if values else math.nan,
        total=statistics.stdev(values) if len(values) > 1 else None,
        between=between,
        within=within,
        p=_test_difference(groups) if between is not None else None,
        unit=metric.difference_unit,
    )


def _estimate_components(groups: Sequence[Sequence[float]]) -> tuple[float | None, float | None]:
    """Return the standard deviations between and within groups."""
    count = sum(map(len, groups))
    if count <= len(groups):  # one training each
        return None, None
    means = [statistics.mean(group) for group in groups]
    inner = sum((value - mean) ** 2 for group, mean in zip(groups, means, strict=True) for value in group)
    within = inner / (count - len(groups))
    if len(groups) < 2:
        return None, math.sqrt(within)
    centre = sum(map(sum, groups)) / count
    outer = sum(len(group) * (mean - centre) ** 2 for group, mean in zip(groups, means, strict=True))
    # the effective size of a group: the mean size if all are equal, less otherwise
    size = (count - sum(len(group) ** 2 for group in groups) / count) / (len(groups) - 1)
    between = max(0.0, (outer / (len(groups) - 1) - within) / size)
    return math.sqrt(between), math.sqrt(within)


def _test_difference(groups: Sequence[Sequence[float]]) -> float | None:
    p = float(scipy.stats.f_oneway(*groups).pvalue)
    return None if math.isnan(p) else p  # all values are equal
