"""Variance of searches and of retrainings, told apart: against a textbook, by simulation, and in words."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from archloom.pipelines.spread import spread_of


def test_by_hand() -> None:
    """Groups 1,3 and 5,7: mean squares 16 between and 2 within, so that variances are (16 - 2) / 2 and 2."""
    spread = spread_of([[1.0, 3.0], [5.0, 7.0]])
    assert spread.within == pytest.approx(math.sqrt(2))
    assert spread.between == pytest.approx(math.sqrt(7))
    assert (spread.searches, spread.trainings, spread.mean) == (2, 4, 4.0)
    assert spread.p == pytest.approx(0.1056, abs=1e-4)  # F = 8 with 1 and 2 degrees of freedom


@pytest.mark.parametrize("sizes", [[3] * 6, [1, 1, 1, 1, 8, 8]])
def test_estimates_are_right_on_average(sizes: list[int]) -> None:
    """Variances, not deviations, are estimated without bias; here also for groups of unequal size."""
    rng = random.Random(7)
    between, within = [], []
    for _ in range(1500):
        centres = [rng.gauss(90, 2.0) for _ in sizes]
        spread = spread_of(
            [[rng.gauss(centre, 0.5) for _ in range(size)] for centre, size in zip(centres, sizes, strict=True)]
        )
        assert spread.between is not None and spread.within is not None
        between.append(spread.between**2)
        within.append(spread.within**2)
    assert statistics.mean(between) == pytest.approx(4.0, rel=0.08)
    assert statistics.mean(within) == pytest.approx(0.25, rel=0.05)


def test_where_searches_do_not_differ_the_test_keeps_its_level() -> None:
    rng = random.Random(3)
    drawn = [spread_of([[rng.gauss(0, 1) for _ in range(3)] for _ in range(5)]) for _ in range(400)]
    assert 0.02 < statistics.mean(spread.p is not None and spread.p < 0.05 for spread in drawn) < 0.09


def test_in_words() -> None:
    assert spread_of([[1.0, 3.0], [5.0, 7.0]]).sentence == (
        "searches differ by ±2.65, retrainings of one architecture by ±1.41 points "
        "(standard deviations, 2 searches, 4 retrainings; that searches differ at all has p = 0.106)."
    )
    assert "no more than" in spread_of([[1.0, 9.0], [2.0, 8.0]]).sentence
    assert "cannot be told apart" in spread_of([[1.0], [3.0]]).sentence
    assert "±1.41" in spread_of([[1.0], [3.0]]).sentence
    assert "one search was retrained" in spread_of([[1.0, 3.0]]).sentence
    assert spread_of([[1.0], []]).sentence == "One result has no spread."


def test_equal_values_have_no_spread_and_no_p() -> None:
    spread = spread_of([[2.0, 2.0], [2.0, 2.0]])
    assert (spread.between, spread.within, spread.p) == (0.0, 0.0, None)
