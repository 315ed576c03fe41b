import torch

from archloom.spaces import Nb201
from archloom.strategies.base import OneShot


class Counting(OneShot):
    """Keeps a plain number, as an average or a counter would be."""

    stateful = ("average", "layer")

    def __init__(self) -> None:
        super().__init__(Nb201(nodes=2), torch.Generator().manual_seed(0))
        self.average = 0.0
        self.layer = torch.nn.Linear(1, 1)

    def step(self, weights, batch):
        return {}

    def best(self, evaluate, *, final=True):
        return self.space.parse("|none~0|")


def test_plain_values_and_modules_are_both_kept():
    first, second = Counting(), Counting()
    first.average = 0.75
    first.python_random()
    second.load_state_dict(first.state_dict())
    assert second.average == 0.75
    assert torch.equal(first.layer.weight, second.layer.weight)
    assert first.python_random().random() == second.python_random().random()


def test_modules_go_to_the_device_and_plain_values_stay():
    strategy = Counting()
    strategy.to(torch.device("meta"))
    assert strategy.layer.weight.device.type == "meta"
    assert strategy.average == 0.0
