"""Analysis of a space: numbers against hand-worked ones and scipy's, and facts that are known of NAS-Bench-201."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from archloom.benchmarks.analysis import Analysis, count_distinct, histogram, pareto_front, quantiles, spearman
from archloom.benchmarks.digits import DigitsTable
from archloom.benchmarks.nb201 import Nb201Table
from archloom.core.errors import BenchmarkError
from archloom.spaces import SPACES, Darts

TABLE = DigitsTable()
ANALYSIS = Analysis(TABLE, TABLE.space, "digits")


def test_rank_correlation_is_scipys_with_ties_and_without():
    rng = np.random.default_rng(0)
    for values in (rng.normal(size=50), rng.integers(0, 5, size=50).astype(float)):
        other = values + rng.integers(-2, 3, size=50)
        assert spearman(values, other) == pytest.approx(stats.spearmanr(values, other).statistic, abs=1e-5)
    assert spearman(values, np.ones(50)) is None


def test_the_front_is_what_nothing_beats():
    cost = np.array([3.0, 1.0, 2.0, 2.0, 4.0, 4.0, 1.0])
    accuracy = np.array([70.0, 50.0, 60.0, 65.0, 70.0, 90.0, 50.0])
    assert pareto_front(cost, accuracy) == [1, 3, 0, 5]


def test_the_front_of_random_points_is_that_of_the_definition():
    rng = np.random.default_rng(1)
    cost, accuracy = rng.integers(0, 20, size=(2, 200)).astype(float)
    front = pareto_front(cost, accuracy)
    for place in range(200):
        beaten = ((cost <= cost[place]) & (accuracy > accuracy[place])).any() or (
            (cost < cost[place]) & (accuracy >= accuracy[place])
        ).any()
        on_it = any(cost[place] == cost[other] and accuracy[place] == accuracy[other] for other in front)
        assert on_it is not bool(beaten)


def test_a_histogram_counts_everything_once_and_lumps_the_failures():
    values = np.concatenate([np.full(4, 10.0), np.linspace(80, 94, 96)])
    bins = histogram(values)
    assert sum(count for _, _, count in bins) == 100
    assert bins[0][0] == 10 and bins[0][1] >= 80 and bins[0][2] == 5
    assert bins[-1][1] == 94
    assert sum(count for _, _, count in histogram(np.full(7, 3.0))) == 7


def test_quantiles_go_from_the_lowest_to_the_highest():
    found = quantiles(np.arange(101.0))
    assert (found["0"], found["0.25"], found["0.5"], found["1"]) == (0, 25, 50, 100)


def test_effects_are_means_over_all_that_take_an_option():
    column = TABLE.column("digits")
    for effect in ANALYSIS.effects():
        for option, mean in effect.means.items():
            taken = [column[row] for row in range(125) if TABLE.architecture(row)[effect.decision] == option]
            assert len(taken) == 25
            assert mean == pytest.approx(np.mean(taken), abs=1e-4)
        between = np.var(list(effect.means.values()))  # groups are of equal size
        assert effect.explained == pytest.approx(between / np.var(column), abs=1e-4)
        assert 0 <= effect.explained <= 1


def test_a_table_is_looked_at_only_where_the_space_is():
    space = TABLE.space.restrict({"0->1": ["none"], "0->2": ["skip_connect", "nor_conv_3x3"]})
    analysis = Analysis(TABLE, space, "digits")
    assert len(analysis.rows) == 10
    assert all(architecture["0->1"] == "none" for architecture in analysis.architectures)
    assert set(analysis.effects()[0].means) == {"none"}
    assert analysis.effects()[0].explained == 0


def test_near_the_best_and_agreement_of_the_embedded_table():
    assert ANALYSIS.near_best() == 34
    assert [(one, other) for one, other, _ in ANALYSIS.agreements()] == [
        ("digits valid, 12 epochs", "digits test, 12 epochs")
    ]
    assert ANALYSIS.costs() == {}
    with pytest.raises(BenchmarkError, match="knows no latencies, asked for 'pixel3'"):
        ANALYSIS.latencies("pixel3")


def test_costs_that_are_not_known_take_no_part_in_a_front():
    cost = np.full(125, np.nan)
    cost[[3, 70]] = 1.0, 2.0
    front = ANALYSIS.front(cost)
    assert {row["text"] for row in front} <= {TABLE.space.format(TABLE.architecture(row)) for row in (3, 70)}
    assert front


def test_distinct_cells_are_counted_where_a_space_knows_how():
    assert count_distinct(TABLE.space) == 60
    assert count_distinct(Darts()) is None


def test_what_is_known_of_nb201(nb201_dir):
    analysis = Analysis(Nb201Table.open(nb201_dir), SPACES["nb201"].load()(), "cifar10")
    assert count_distinct(analysis.space) == 6466
    assert quantiles(analysis.accuracy)["1"] == pytest.approx(94.37, abs=0.005)
    found = {(one, other): value for one, other, value in analysis.agreements()}
    assert len(found) == 9
    short = analysis.column(epochs=12)
    wanted = stats.spearmanr(short, analysis.accuracy).statistic
    assert found["cifar10 test, 12 epochs", "cifar10 test, 200 epochs"] == pytest.approx(wanted, abs=1e-5)
    pixel3 = analysis.latencies("pixel3")
    cell = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"
    place = analysis.architectures.index(analysis.space.parse(cell))
    assert pixel3[place] == pytest.approx(35.033, abs=1e-3)
    front = analysis.front(pixel3)
    assert front[-1]["accuracy"] == pytest.approx(94.37, abs=0.005)
    figures = analysis.figures()
    assert figures["accuracy"]["within_a_point_of_the_best"] == 582
    assert len(figures["latencies"]) == 27
