import torch

from archloom.spaces import Nb201
from archloom.strategies.base import Trial
from archloom.strategies.random_search import RandomSearch


def test_trials_are_numbered_as_asked_and_drawn_from_the_generator():
    space = Nb201(nodes=3)
    first, second = (RandomSearch(space, torch.Generator().manual_seed(seed)) for seed in (0, 0))
    asked = [first.ask(number) for number in range(20)]
    assert asked == [second.ask(number) for number in range(20)]
    assert [trial.number for trial in asked] == list(range(20))
    assert len({trial.architecture for trial in asked}) > 10


def test_a_score_teaches_it_nothing():
    strategy = RandomSearch(Nb201(nodes=3), torch.Generator().manual_seed(0))
    before = strategy.state_dict()
    strategy.tell(Trial(0, Nb201(nodes=3).parse("|none~0|+|none~0|none~1|")), 1.0)
    assert torch.equal(before["generator"], strategy.state_dict()["generator"])
