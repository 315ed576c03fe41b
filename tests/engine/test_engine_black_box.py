import torch

from archloom.engine.black_box import BlackBoxSearch, TableScore
from archloom.engine.events import Advanced
from archloom.spaces import Nb201
from archloom.strategies.base import BlackBox, Trial

SPACE = Nb201(nodes=2)


class InOrder(BlackBox):
    """Asks for the five operations in turn."""

    told: tuple = ()

    def ask(self, number):
        return Trial(number, SPACE.parse(f"|{SPACE.operations[number]}~0|"))

    def tell(self, trial, score):
        self.told = (*self.told, (trial.number, score))


def score(architecture) -> float:
    return {"none": 10.0, "skip_connect": 50.0, "nor_conv_1x1": 80.0, "nor_conv_3x3": 80.0, "avg_pool_3x3": 40.0}[
        architecture["0->1"]
    ]


def make(**options) -> BlackBoxSearch:
    strategy = InOrder(SPACE, torch.Generator())
    return BlackBoxSearch(SPACE, strategy, score, trials=5, clock=iter(range(100)).__next__, **options)


def test_asks_scores_tells_and_returns_the_best_the_first_of_equals():
    told = []
    search = make(listeners=[told.append])
    outcome = search.run()
    assert search.strategy.told == ((0, 10.0), (1, 50.0), (2, 80.0), (3, 80.0), (4, 40.0))
    assert outcome["text"] == "|nor_conv_1x1~0|"
    assert "The best score of 5 different architectures tried: 80.00." in outcome["verdict"]
    assert [record["best"] for record in search.history] == [10.0, 50.0, 80.0, 80.0, 80.0]
    assert [record["trial"] for record in search.history] == [0, 1, 2, 3, 4]
    assert [event.metrics for event in told if isinstance(event, Advanced)][1] == {"score": 50.0, "best": 50.0}


def test_a_table_scores_by_validation_never_by_test():
    class Table:
        def query(self, architecture, dataset, *, metric):
            return {("digits", "valid"): 71.0}[dataset, metric]

    assert TableScore(Table(), "digits")(SPACE.parse("|none~0|")) == 71.0


def test_trials_that_come_fast_are_saved_now_and_then_and_at_the_end():
    saved = []
    make().run(save=lambda state, step: saved.append(step))  # the clock moves a second at every look
    assert saved[-1] == 5
    assert len(saved) < 5
