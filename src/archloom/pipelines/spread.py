"""Whose doing a spread is: how much searches differ, and how much trainings of one architecture do.

A one-way analysis of variance with random effects: a result is a mean, plus what its search contributed, plus what its
training did. The estimates are those of equated mean squares, also for unequal numbers of trainings.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Standard deviations, in the unit of the values; None where they cannot be told."""

    searches: int
    trainings: int
    mean: float
    total: float | None  # of all values, whatever it is due to
    between: float | None  # of searches
    within: float | None  # of trainings of one architecture
    p: float | None  # of the F test that searches differ at all

    @property
    def sentence(self) -> str:
        """What can be said of it, in plain words."""
        if self.between is not None and self.within is not None:
            if self.between == 0:
                told = "searches differ no more than trainings of one architecture do"
            else:
                told = f"searches differ by ±{self.between:.2f}"
            test = "" if self.p is None else f"; that searches differ at all has p = {self.p:.3f}"
            return (
                f"{told}, retrainings of one architecture by ±{self.within:.2f} points (standard deviations, "
                f"{self.searches} searches, {self.trainings} retrainings{test})."
            )
        if self.within is not None:
            return (
                f"Retrainings of one architecture differ by ±{self.within:.2f} points (standard deviation of "
                f"{self.trainings}); one search was retrained, so that how much searches differ is not told by it."
            )
        if self.total is not None:
            return (
                f"Results differ by ±{self.total:.2f} points (standard deviation of {self.trainings}). Each search was "
                "retrained once, so that the spread of searches and that of retrainings cannot be told apart."
            )
        return "One result has no spread."


def spread_of(groups: Sequence[Sequence[float]]) -> Spread:
    """The spread of results: a group for each search, with the results of its trainings."""
    groups = [group for group in groups if group]
    values = [value for group in groups for value in group]
    between, within = _components(groups)
    return Spread(
        searches=len(groups),
        trainings=len(values),
        mean=statistics.mean(values) if values else math.nan,
        total=statistics.stdev(values) if len(values) > 1 else None,
        between=between,
        within=within,
        p=_p_value(groups) if between is not None else None,
    )


def _components(groups: Sequence[Sequence[float]]) -> tuple[float | None, float | None]:
    """Standard deviations between and within groups."""
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
    # the size of a group that counts: their number where all are alike, less where they are not
    size = (count - sum(len(group) ** 2 for group in groups) / count) / (len(groups) - 1)
    between = max(0.0, (outer / (len(groups) - 1) - within) / size)
    return math.sqrt(between), math.sqrt(within)


def _p_value(groups: Sequence[Sequence[float]]) -> float | None:
    from scipy.stats import f_oneway

    p = float(f_oneway(*groups).pvalue)
    return None if math.isnan(p) else p  # all values alike
