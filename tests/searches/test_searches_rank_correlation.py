"""Rank quality: coefficients against hand-worked ones, and a table and weights whose agreement is known."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from archloom.benchmarks.digits import DigitsTable
from archloom.searches import rank_correlation as rank
from archloom.searches.rank_correlation import (
    ScoredPath,
    measure_agreement,
    measure_rank_quality,
    sample_rows,
    score_rows,
)

TABLE = DigitsTable()
COLUMN = TABLE.column("digits")


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    """Enough to see what an interval does, in a tenth of the time."""
    monkeypatch.setattr(rank, "RESAMPLES", 100)


def scored(shared, known) -> list[ScoredPath]:
    return [ScoredPath(str(place), x, y) for place, (x, y) in enumerate(zip(shared, known, strict=True))]


def tau_b(shared, known) -> float:
    """By its definition: agreeing pairs minus disagreeing ones, over the pairs that are not tied."""
    pairs = list(itertools.combinations(zip(shared, known, strict=True), 2))
    signs = [(np.sign(a[0] - b[0]), np.sign(a[1] - b[1])) for a, b in pairs]
    apart = math.sqrt(sum(x != 0 for x, _ in signs) * sum(y != 0 for _, y in signs))
    return sum(x * y for x, y in signs) / apart


def by_paths(paths, *, count=40, seed=0):
    rows = sample_rows(TABLE, TABLE.space, "digits", count=count, seed=seed)
    return list(score_rows(paths, TABLE.space, TABLE, COLUMN, rows))


def test_coefficients_are_those_worked_by_hand_with_ties():
    shared, known = [1.0, 2.0, 2.0, 3.0, 5.0, 4.0], [1.0, 3.0, 2.0, 2.0, 6.0, 7.0]
    found = measure_agreement(scored(shared, known))
    assert found.kendall.value == pytest.approx(tau_b(shared, known))
    ranks = np.corrcoef([1, 2.5, 2.5, 4, 6, 5], [1, 4, 2.5, 2.5, 5, 6])[0, 1]
    assert found.spearman.value == pytest.approx(ranks)


@pytest.mark.parametrize(("sign", "expected"), [(1, 1.0), (-1, -1.0)])
def test_weights_that_know_the_order_have_all_of_it_and_inverted_ones_none(sign, expected):
    sample = by_paths(lambda architecture: sign * math.exp(TABLE.query(architecture, "digits") / 50))
    found = measure_agreement(sample)
    assert found.kendall.value == pytest.approx(expected)
    assert found.spearman.value == pytest.approx(expected)
    assert (found.kendall.low, found.kendall.high) == pytest.approx((expected, expected))


def test_one_exchange_of_neighbours_costs_two_pairs():
    found = measure_agreement(scored([1, 2, 3, 4, 6, 5], [1, 2, 3, 4, 5, 6]))
    assert found.kendall.value == pytest.approx(1 - 2 / 15)


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    truth, hits = 2 / math.pi * math.asin(0.6), 0  # tau of normal numbers of correlation 0.6
    for repeat in range(10):
        x = rng.normal(size=30)
        y = 0.6 * x + 0.8 * rng.normal(size=30)
        kendall = measure_agreement(scored(x, y), seed=repeat).kendall
        assert kendall.low < kendall.value < kendall.high
        hits += kendall.low <= truth <= kendall.high
    assert 7 <= hits <= 10


def test_more_architectures_make_it_narrower_and_a_seed_makes_it_the_same():
    rng = np.random.default_rng(1)
    x = rng.normal(size=200)
    y = x + rng.normal(size=200)
    few, many = measure_agreement(scored(x[:20], y[:20])).kendall, measure_agreement(scored(x, y)).kendall
    assert many.high - many.low < 0.6 * (few.high - few.low)
    assert measure_agreement(scored(x[:20], y[:20]), seed=0).kendall == few


@pytest.mark.parametrize("shared", [[7.0] * 9, [1.0, 2.0, 3.0, 4.0]])
def test_undetermined_coefficients_are_none(shared):
    found = measure_agreement(scored(shared, range(len(shared))))
    assert found.kendall.value is found.kendall.low is found.spearman.value is None


def test_the_top_tenth_is_the_tables_and_may_be_ordered_otherwise():
    column = np.arange(100.0)
    order_of_shared = [*range(90), *range(99, 89, -1)]  # right but for the best ten, which are upside down
    sample = scored([place / 100 for place in order_of_shared], range(100))
    found = measure_rank_quality(sample, column)
    assert found.top.count == 10
    assert found.top.kendall.value == pytest.approx(-1)
    assert found.all.kendall.value == pytest.approx(1 - 2 * 45 / 4950)
    assert (found.picked.table, found.best.table) == (90, 99)
    assert found.regret == pytest.approx(9)
    assert found.average == pytest.approx(49.5)


def test_regret_is_against_the_whole_table_not_the_sample():
    found = measure_rank_quality(scored([1, 3, 2], [10, 30, 20]), np.array([10.0, 20.0, 30.0, 90.0]))
    assert found.picked.table == found.best.table == 30
    assert found.regret == 60


def test_empty_sample_has_no_figures():
    found = measure_rank_quality([], np.arange(10.0))
    assert found.picked is found.best is found.regret is found.average is None


def test_a_sample_is_distinct_uniform_and_the_same_for_a_seed():
    rows = [sample_rows(TABLE, TABLE.space, "digits", count=25, seed=seed) for seed in range(200)]
    assert all(len(set(drawn)) == 25 for drawn in rows)
    counts = np.bincount(np.concatenate(rows), minlength=125)
    assert counts.mean() == 40
    assert counts.min() > 20 and counts.max() < 62  # 40 +- 5.7 of a binomial
    assert sample_rows(TABLE, TABLE.space, "digits", count=25, seed=7) == rows[7]


def test_a_sample_stays_within_a_smaller_space_and_takes_all_there_is():
    space = TABLE.space.restrict({"0->1": ["none", "nor_conv_3x3"], "0->2": ["skip_connect"]})
    rows = sample_rows(TABLE, space, "digits", count=1000, seed=0)
    assert len(rows) == len(set(rows)) == 10
    assert {TABLE.architecture(row)["0->1"] for row in rows} == {"none", "nor_conv_3x3"}
