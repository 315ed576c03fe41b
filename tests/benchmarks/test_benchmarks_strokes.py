"""The packaged strokes table: complete, and its cells differ by far more than their seeds do."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from numpy.typing import NDArray

from archloom.benchmarks.strokes import StrokesTable

TABLE = StrokesTable()
CELLS = [TABLE.architecture(row) for row in range(125)]
TEST, VALID = (np.asarray(TABLE.column("strokes", metric=metric)) for metric in ("test", "valid"))
CONNECTED = np.array([TABLE.space.canonical(cell) != "#+#" for cell in CELLS])  # from input to output


def accuracy(*options: str) -> float:
    """Return the test accuracy of the cell with these options on 0->1, 0->2 and 1->2."""
    return TABLE.query(dict(zip(("0->1", "0->2", "1->2"), options, strict=True)), "strokes")


def spreads() -> NDArray[np.float64]:
    """Return the standard deviation over seeds of every connected cell, in points."""
    return np.asarray(TABLE.scores_by_seed()[CONNECTED].std(axis=1, ddof=1))


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return mean ranks: equal scores share one."""
    return np.array([(values < value).sum() + (values == value).sum() / 2 for value in values])


def test_the_table_is_complete() -> None:
    for metric in TABLE.metrics:
        assert TABLE.scores_by_seed(metric).shape == (125, len(TABLE.seeds))
    assert TABLE.seeds == tuple(range(len(TABLE.seeds))) and len(TABLE.seeds) >= 5
    assert TABLE.epochs == (10,)
    assert TABLE.protocol["data"] == "strokes"
    assert TABLE.training_seconds is not None and TABLE.training_seconds.min() > 0


def test_the_best_lies_ten_standard_errors_above_the_median() -> None:
    best, score = TABLE.best("strokes")
    assert score - np.median(TEST) > 10 * TABLE.spread(best) / len(TABLE.seeds) ** 0.5


def test_by_the_pooled_standard_error_it_is_eight() -> None:
    """The variances of all cells are pooled here; those of the worst cells are the largest."""
    pooled = np.sqrt(np.mean(spreads() ** 2) / len(TABLE.seeds))
    assert TEST.max() - np.median(TEST) > 8 * pooled


def test_cells_differ_by_five_times_their_mean_spread_over_seeds() -> None:
    assert TEST[CONNECTED].std() > 5 * spreads().mean()


def test_validation_predicts_test() -> None:
    assert np.corrcoef(ranks(VALID[CONNECTED]), ranks(TEST[CONNECTED]))[0, 1] > 0.95


def test_seeds_agree_on_the_order() -> None:
    scores = TABLE.scores_by_seed()[CONNECTED]
    first, second = scores[:, ::2].mean(axis=1), scores[:, 1::2].mean(axis=1)
    assert np.corrcoef(ranks(first), ranks(second))[0, 1] > 0.9


def test_what_connects_nothing_guesses() -> None:
    assert np.count_nonzero(~CONNECTED) == 9
    assert TEST[~CONNECTED] == pytest.approx(10, abs=1)
    assert TEST[CONNECTED].min() > 40


def test_convolutions_and_depth_pay() -> None:
    single = {name: accuracy("none", name, "none") for name in TABLE.space.operations}
    order = sorted(single, key=lambda name: single[name])
    assert order == ["none", "avg_pool_3x3", "skip_connect", "nor_conv_1x1", "nor_conv_3x3"]
    assert single["skip_connect"] < np.median(TEST)
    block = accuracy("nor_conv_3x3", "skip_connect", "nor_conv_3x3")  # of a ResNet
    assert block > single["nor_conv_3x3"] > np.median(TEST)


def test_isomorphic_cells_share_their_scores() -> None:
    scores = defaultdict(set)
    for cell, values in zip(CELLS, TABLE.scores_by_seed(), strict=True):
        scores[TABLE.space.canonical(cell)].add(tuple(values))
    assert len(scores) == 60
    assert all(len(values) == 1 for values in scores.values())
    assert len(set.union(*scores.values())) == 60
