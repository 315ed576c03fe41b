"""Short trainings decide between finalists: the best third goes on for three times as long."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from archloom.data.augment import Augment
from archloom.data.loader import Loader
from archloom.data.source import InMemory
from archloom.engine.finals import Finals
from archloom.spaces import Darts, Nb201
from archloom.supernets import SharedWeights

SPACE = Nb201(nodes=2, cells_per_stage=1)
FIVE = [SPACE.parse(f"|{operation}~0|") for operation in SPACE.operations]


def loader(indices: torch.Tensor, batch_size: int) -> Loader:
    images = torch.randn(20, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    labels = (images.sum(dim=(1, 2, 3)) > 0).long()
    source = InMemory(images, labels)
    return Loader(source, indices, batch_size=batch_size, mean=(0.0,), std=(1.0,), augment=Augment(), seed=0)


class Slow(nn.Module):
    """A linear classifier whose gradient is scaled: one that learns faster or more slowly, or not at all."""

    def __init__(self, speed: float) -> None:
        super().__init__()
        self.linear, self.speed, self.seen = nn.Linear(4, 2), speed, []
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, images: torch.Tensor, gates: object) -> torch.Tensor:
        if torch.is_grad_enabled():
            self.seen.append(images.sum().item())
        logits: torch.Tensor = self.linear(images.flatten(1)) * self.speed
        return logits


@pytest.fixture
def begun() -> dict:
    return {}


def finals(begun: dict, speeds: dict, steps: int = 2) -> Finals:
    def begin(architecture):
        begun[architecture] = Slow(speeds[architecture])
        return SharedWeights(begun[architecture], learning_rate=0.1)

    return Finals(begin, train=loader(torch.arange(12), 4), judge=loader(torch.arange(12, 20), 4), steps=steps)


def test_the_best_third_goes_on_for_three_times_as_long_and_the_best_wins(begun):
    speeds = dict(zip(FIVE, (0.1, 3.0, 0.3, 2.0, 0.0), strict=True))
    told: list[str] = []
    winner, rows = finals(begun, speeds).winner(FIVE, tell=told.append)
    assert winner == FIVE[1]
    assert [row["architecture"] for row in rows[:2]] == [dict(FIVE[1]), dict(FIVE[3])]
    assert [row["steps"] for row in rows] == [8, 8, 2, 2, 2]  # 2, then 6 more for two
    assert rows[0]["valid_loss"] < rows[1]["valid_loss"] < rows[2]["valid_loss"]
    assert told[0] == "training finalist 1 of 5 for 2 steps"
    assert told[-1] == "training finalist 2 of 2 for 6 steps"


def test_all_see_the_same_batches_and_go_on_where_they_were(begun):
    speeds = dict(zip(FIVE, (0.1, 3.0, 0.3, 2.0, 0.0), strict=True))
    finals(begun, speeds).winner(FIVE)
    longest = begun[FIVE[1]].seen
    assert len(longest) == 8
    assert len(set(longest)) == 8  # other batches in every epoch
    for network in begun.values():
        assert network.seen == longest[: len(network.seen)]


def test_one_that_diverges_loses_and_a_tie_goes_to_who_was_named_first(begun):
    speeds = dict(zip(FIVE, (math.inf, 1.0, 1.0, 1.0, 1.0), strict=True))
    winner, rows = finals(begun, speeds).winner(FIVE)
    assert winner == FIVE[1]
    assert rows[-1]["architecture"] == dict(FIVE[0])
    assert rows[-1]["valid_loss"] is None


def test_it_can_be_stopped_before_any_step(begun):
    left = iter(range(3))

    def before_step() -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finals(begun, dict.fromkeys(FIVE, 1.0)).winner(FIVE, before_step=before_step)
    assert [len(network.seen) for network in begun.values()] == [2, 1, 0, 0, 0]


def test_full_depth_is_that_of_the_networks_trained_in_the_end():
    assert Nb201(cells_per_stage=1).at_full_depth() == Nb201(cells_per_stage=5)
    assert Nb201(cells_per_stage=7).at_full_depth() == Nb201(cells_per_stage=7)
    assert Darts(cells=8).at_full_depth() == Darts(cells=20)
    assert Darts(cells_per_block=2).at_full_depth() == Darts(cells_per_block=6)
    own = Darts(cells=4, sharing="none")
    assert own.at_full_depth() == own
    for space in (Nb201(cells_per_stage=1), Darts(cells=3, nodes=2), own):
        assert [d.name for d in space.decisions] == [d.name for d in space.at_full_depth().decisions]
