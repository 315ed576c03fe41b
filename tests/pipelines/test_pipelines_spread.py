"""Variance of searches and of retrainings: by hand, by simulation, and in sentences."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from archloom.pipelines.spread import split_variance


def test_by_hand() -> None:
    """Groups 1,3 and 5,7: mean squares 16 between and 2 within, so the variances are (16 - 2) / 2 and 2."""
    spread = split_variance([[1.0, 3.0], [5.0, 7.0]])
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
        spread = split_variance(
            [[rng.gauss(centre, 0.5) for _ in range(size)] for centre, size in zip(centres, sizes, strict=True)]
        )
        assert spread.between is not None and spread.within is not None
        between.append(spread.between**2)
        within.append(spread.within**2)
    assert statistics.mean(between) == pytest.approx(4.0, rel=0.08)
    assert statistics.mean(within) == pytest.approx(0.25, rel=0.05)


def test_level_of_the_test_if_searches_do_not_differ() -> None:
    rng = random.Random(3)
    drawn = [split_variance([[rng.gauss(0, 1) for _ in range(3)] for _ in range(5)]) for _ in range(400)]
    assert 0.02 < statistics.mean(spread.p is not None and spread.p < 0.05 for spread in drawn) < 0.09


def test_sentences() -> None:
    assert split_variance([[1.0, 3.0], [5.0, 7.0]]).sentence == (
        "Searches differ by ±2.65, retrainings of one architecture by ±1.41 points "
        "(standard deviations, 2 searches, 4 retrainings; test of a difference between searches: p = 0.106)."
    )
    assert "no more than" in split_variance([[1.0, 9.0], [2.0, 8.0]]).sentence
    assert "cannot be separated" in split_variance([[1.0], [3.0]]).sentence
    assert "±1.41" in split_variance([[1.0], [3.0]]).sentence
    assert "Only one search was retrained" in split_variance([[1.0, 3.0]]).sentence
    assert split_variance([[1.0], []]).sentence == "One result has no spread."


def test_equal_values_have_no_spread_and_no_p() -> None:
    spread = split_variance([[2.0, 2.0], [2.0, 2.0]])
    assert (spread.between, spread.within, spread.p) == (0.0, 0.0, None)
