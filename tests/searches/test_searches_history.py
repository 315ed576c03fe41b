"""Questions to the records of a search."""

from __future__ import annotations

import math

from archloom.searches.history import (
    best_trial,
    chosen_so_far,
    epochs_of,
    find_changes,
    metric_series,
    trials_of,
    unit_of,
)
from archloom.spaces import Architecture
from search_runs import make_epoch, make_trial


def test_records_are_epochs_or_trials() -> None:
    epochs, trials = [make_epoch()], [make_trial()]
    assert (epochs_of(epochs), trials_of(epochs), unit_of(epochs)) == (epochs, [], "epoch")
    assert (epochs_of(trials), trials_of(trials), unit_of(trials)) == ([], trials, "trial")
    assert unit_of([]) == "epoch"


def test_metrics_without_any_number_are_left_out() -> None:
    rows = ({"b": math.nan, "a": 1.0}, {"b": 2.0, "c": math.nan}, {})
    found = metric_series([make_epoch(epoch, metrics=row) for epoch, row in enumerate(rows)])
    assert list(found) == ["a", "b"]
    assert found["a"][0] == 1.0
    assert [math.isnan(value) for value in found["b"]] == [True, False, True]


def test_changes_mark_epochs_with_another_architecture() -> None:
    history = [make_epoch(epoch, architecture=Architecture({"x": x})) for epoch, x in enumerate("1121")]
    assert find_changes(history) == [False, False, True, True]
    assert find_changes([]) == []


def test_the_best_trial_is_complete_and_meets_the_target() -> None:
    first, second = make_trial(0, 80.0), make_trial(1, 80.0)
    assert best_trial([first, second, make_trial(2, 99.0, pruned=True)]) == first
    missed = make_trial(3, 95.0, met=False, reward=60.0, cost=2.0)
    assert best_trial([missed, make_trial(4, 70.0, met=True, reward=70.0, cost=1.0)]).trial == 4
    assert best_trial([missed, make_trial(5, 90.0, met=False, reward=65.0, cost=2.0)]).trial == 5
    assert best_trial([make_trial(6, pruned=True)]).trial == 6


def test_an_unfinished_search_offers_its_best_trial_or_its_latest_epoch() -> None:
    trials = [make_trial(0, 2.0), make_trial(1, 1.0)]
    assert chosen_so_far(trials) == trials[0]
    epochs = [make_epoch(0), make_epoch(1)]
    assert chosen_so_far(epochs) == epochs[1]
    assert chosen_so_far([]) is None
