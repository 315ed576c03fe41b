import random

import pytest
import torch

from archloom.spaces import Nb201
from archloom.strategies.base import Trial
from archloom.strategies.bohb import Bohb

pytest.importorskip("optuna")

SPACE = Nb201(nodes=3)
EPOCHS = 9


def make(**settings) -> Bohb:
    return Bohb(SPACE, torch.Generator().manual_seed(0), **{"startup_trials": 4, **settings})


def train(strategy: Bohb, trial: Trial, quality: float) -> int:
    """As the engine does it: scores on the way, then the last one; the epochs that it took."""
    for epochs in range(1, EPOCHS):
        if not strategy.should_continue(trial, epochs, quality * epochs):
            strategy.report_pruned(trial, quality * epochs)
            return epochs
    strategy.tell(trial, quality * EPOCHS)
    return EPOCHS


def run(strategy: Bohb, trials: range) -> list[int]:
    return [train(strategy, strategy.ask(number), random.Random(number).random()) for number in trials]


def test_nothing_is_stopped_before_one_training_is_complete_and_rungs_are_powers():
    epochs = run(make(), range(60))
    assert epochs[0] == EPOCHS
    assert set(epochs) == {1, 3, EPOCHS}  # brackets begin at 1, 3 and 9 epochs
    assert sum(epochs) < 0.7 * EPOCHS * len(epochs)


def test_what_is_stopped_is_the_worse():
    strategy = make()
    run(strategy, range(40))
    qualities = [random.Random(number).random() for number in range(40)]
    stopped = [trial["pruned"] for trial in strategy.trials.state_dict()["trials"]]
    mean = {
        pruned: sum(q for q, p in zip(qualities, stopped, strict=True) if p == pruned) / stopped.count(pruned)
        for pruned in (False, True)
    }
    assert mean[True] < mean[False] - 0.15


def test_rungs_are_part_of_the_state():
    first, second = make(), make()
    run(first, range(15))
    second.load_state_dict(first.state_dict())
    assert second.trials.state_dict() == first.trials.state_dict()
    assert run(first, range(15, 40)) == run(second, range(15, 40))
    assert first.trials.state_dict() == second.trials.state_dict()


def test_the_least_epochs_are_left_to_everyone():
    assert min(run(make(least_epochs=4), range(40))) == 4


def test_scores_that_come_at_once_are_never_reports():
    strategy = make()
    for number in range(6):
        strategy.tell(strategy.ask(number), float(number))
    assert [trial["reports"] for trial in strategy.trials.state_dict()["trials"]] == [{}] * 6


def test_trials_of_others_count_at_the_rungs():
    alone, other = make(), make()
    epochs = run(alone, range(20))
    for number in range(20):  # another process asked for these
        trial = Trial(number, SPACE.check(alone.trials.state_dict()["trials"][number]["parameters"]))
        quality = random.Random(number).random()
        for done in range(1, min(epochs[number] + 1, EPOCHS)):
            other.should_continue(trial, done, quality * done)
        (other.tell if epochs[number] == EPOCHS else other.report_pruned)(trial, quality * epochs[number])
    assert other.trials.state_dict() == alone.trials.state_dict()
