"""Records with holes in them."""

from __future__ import annotations

import math

import pytest

from archloom.reports.history import changes, chosen_so_far, find, has_standing, metric_names, number, positions, series


@pytest.mark.parametrize("value", [None, "1", True, math.inf, math.nan, [1]])
def test_what_is_no_finite_number_becomes_nan(value: object) -> None:
    assert math.isnan(number(value))


def test_a_series_has_one_value_per_record() -> None:
    values = series([{"metrics": {"loss": 1}}, {"metrics": None}, {}], "metrics", "loss")
    assert values[0] == 1.0
    assert len(values) == 3
    assert math.isnan(values[1])
    assert math.isnan(values[2])


def test_a_missing_step_of_a_path_gives_none() -> None:
    assert find({"a": {"b": 1}}, "a", "b") == 1
    assert find({"a": 3}, "a", "b") is None
    assert find(None, "a") is None


def test_positions_fall_back_on_the_place_in_the_list() -> None:
    assert positions([{"epoch": 5}, {}, {"epoch": None}]) == [5.0, 1.0, 2.0]
    assert positions([{"trial": 7}]) == [7.0]


def test_metrics_without_any_number_are_left_out() -> None:
    history = [{"metrics": {"b": None, "a": 1.0}}, {"metrics": {"b": 2.0, "c": math.nan}}, {"metrics": 3}]
    assert metric_names(history) == ["a", "b"]


def test_a_change_is_told_across_a_gap() -> None:
    history = [{"architecture": {"x": "1"}}, {}, {"architecture": {"x": "1"}}, {}, {"architecture": {"x": "2"}}]
    assert changes(history) == [False, False, False, False, True]


def test_a_standing_without_a_number_is_none() -> None:
    assert not has_standing([{"standing": None}, {"standing": {"test": None}}])
    assert has_standing([{"standing": None}, {"standing": {"test": 90.0}}])


def test_an_unfinished_run_offers_its_best_trial_or_its_latest_epoch() -> None:
    trials = [{"trial": 0, "score": 2.0}, {"trial": 1, "score": math.nan}, {"trial": 2, "score": 1.0}]
    assert chosen_so_far(trials) == trials[0]
    epochs = [{"epoch": 0, "architecture": {}}, {"epoch": 1, "architecture": {"x": "1"}}, {"epoch": 2}]
    assert chosen_so_far(epochs) == epochs[1]
    assert chosen_so_far([{"trial": 0, "score": None}]) is None
    assert chosen_so_far([]) is None
