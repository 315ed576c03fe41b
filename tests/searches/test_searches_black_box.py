from collections.abc import Iterator

import pytest
import torch

from archloom.core.errors import SettingError
from archloom.core.events import Advanced
from archloom.searches.black_box import BlackBoxLoop, PathScore, TableScore
from archloom.searches.budget import Budget
from archloom.searches.studies import LocalStudy, Scored
from archloom.spaces import Nb201
from archloom.strategies.base import BlackBox, Trial

SPACE = Nb201(nodes=2)
SCORES = {"none": 10.0, "skip_connect": 50.0, "nor_conv_1x1": 80.0, "nor_conv_3x3": 80.0, "avg_pool_3x3": 40.0}


class InOrder(BlackBox):
    """Asks for the five operations one after the other."""

    told: tuple = ()

    def ask(self, number):
        return Trial(number, SPACE.parse(f"|{SPACE.operations[number]}~0|"))

    def tell(self, trial, score):
        self.told = (*self.told, (trial.number, score))


class GivesUp(InOrder):
    """Stops whatever has less than 60 after the first of four epochs."""

    asked: tuple = ()
    pruned: tuple = ()

    def should_continue(self, trial, epochs, score):
        self.asked = (*self.asked, (trial.number, epochs))
        return score >= 60

    def report_pruned(self, trial, score):
        self.pruned = (*self.pruned, (trial.number, score))


class Instalments:
    """The final score from the first epoch on, but for one operation that promises more than it keeps."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def __call__(self, architecture) -> Iterator[Scored]:
        score = SCORES[architecture["0->1"]]
        for done in range(1, self.epochs + 1):
            yield Scored(done, score)


def make(strategy=InOrder, epochs=1, **options) -> BlackBoxLoop:
    made = strategy(SPACE, torch.Generator())
    return BlackBoxLoop(SPACE, made, Instalments(epochs), trials=5, clock=iter(range(100)).__next__, **options)


def test_a_cell_in_which_nothing_learns_is_named() -> None:
    class OnlySkips(InOrder):
        def ask(self, number):
            return Trial(number, SPACE.parse("|skip_connect~0|"))

    assert "Warning: the cell is an identity: no operation learns." in make(OnlySkips).run().verdict


class Stopwatch:
    """A clock of a search whose trials take a second each."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.5  # a trial looks at it when it begins and when it ends
        return self.now


def test_the_budget_ends_a_search_before_a_trial_that_would_come_late():
    watch = Stopwatch()
    budget = Budget(6.5, clock=lambda: watch.now)  # the end keeps 1.65 s of it
    search = BlackBoxLoop(
        SPACE, InOrder(SPACE, torch.Generator()), Instalments(1), trials=5, clock=watch, budget=budget
    )
    assert "Best score of 3 different architectures" in search.run().verdict
    assert search.total == len(search.history) == 3


def test_a_resumed_search_has_only_the_time_that_was_left():
    watch = Stopwatch()

    def begin() -> BlackBoxLoop:
        budget = Budget(4.9, clock=lambda: watch.now)
        made = InOrder(SPACE, torch.Generator())
        return BlackBoxLoop(SPACE, made, Instalments(1), trials=5, clock=watch, budget=budget)

    first = begin()
    first.history += [first.advance(), first.advance(), first.advance()]
    again = begin()
    again.load_state_dict(first.state_dict())
    again.run()
    assert len(again.history) == 3


def test_result_is_the_best_score_and_the_first_of_equals():
    told = []
    search = make(listeners=[told.append])
    outcome = search.run()
    assert search.strategy.told == ((0, 10.0), (1, 50.0), (2, 80.0), (3, 80.0), (4, 40.0))
    assert outcome.text == "|nor_conv_1x1~0|"
    assert "Best score of 5 different architectures: 80.00." in outcome.verdict
    assert [record.best for record in search.history] == [10.0, 50.0, 80.0, 80.0, 80.0]
    assert [record.trial for record in search.history] == [0, 1, 2, 3, 4]
    assert [event.metrics for event in told if isinstance(event, Advanced)][1] == {"score": 50.0, "best": 50.0}


def test_strategy_may_prune_a_trial_and_its_cost_is_exact():
    search = make(GivesUp, epochs=4)
    search.run()
    assert search.strategy.asked == ((0, 1), (1, 1), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3), (4, 1))
    assert search.strategy.told == ((2, 80.0), (3, 80.0))
    assert search.strategy.pruned == ((0, 10.0), (1, 50.0), (4, 40.0))
    assert [record.epochs for record in search.history] == [1, 1, 4, 4, 1]
    assert [record.pruned for record in search.history] == [True, True, False, False, True]
    assert [record.trainings for record in search.history] == [0.25, 0.5, 1.5, 2.5, 2.75]


def test_pruned_trial_never_wins():
    class StopsTheBest(InOrder):
        def should_continue(self, trial, epochs, score):
            return score < 80

    search = make(StopsTheBest, epochs=2)
    assert search.run().text == "|skip_connect~0|"
    assert [record.best for record in search.history] == [10.0, 50.0, 50.0, 50.0, 50.0]


def test_strategy_that_never_prunes_gets_every_epoch():
    search = make(epochs=3)
    search.run()
    assert [record.trainings for record in search.history] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert not any(record.pruned for record in search.history)


class Table:
    name = "small"
    epochs = (200, 12)
    metrics = ("test", "valid")

    def query(self, architecture, dataset, *, metric, epochs=None):
        return {("digits", "valid", None): 71.0, ("digits", "valid", 12): 55.0}[dataset, metric, epochs]


def test_table_score_is_validation_accuracy():
    cell = SPACE.parse("|none~0|")
    assert list(TableScore(Table(), "digits")(cell)) == [Scored(200, 71.0)]
    assert list(TableScore(Table(), "digits", epochs=12)(cell)) == [Scored(12, 55.0)]
    with pytest.raises(SettingError, match=r"search\.score_epochs must be 200 or 12 for the small table, got 5"):
        TableScore(Table(), "digits", epochs=5)


def test_paths_of_trained_weights_cost_no_training():
    search = make()
    search.score = PathScore(lambda architecture: 3.0)
    search.run()
    assert search.history[-1].trainings == 0.0
    assert search.history[-1].score == 3.0


def test_fast_trials_are_saved_only_now_and_then():
    saved = []
    make().run(save=lambda state, step: saved.append(step))  # the clock moves a second at every look
    assert 0 < len(saved) < 5


def test_waiting_makes_no_record_and_late_results_do_not_count():
    class Busy(LocalStudy):
        turns = iter([False, True, True])
        late = iter([False, True, True])

        def begin(self, strategy, position):
            return super().begin(strategy, position) if next(self.turns) else None

        def finish(self, finished):
            return next(self.late)

    search = make(study=Busy())
    assert [search.advance(), search.advance()] == [None, None]
    assert (search.position, search.strategy.told) == (0, ())
    assert search.advance().trial == 0
