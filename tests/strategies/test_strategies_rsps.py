import pytest
import torch

from archloom.core.errors import SettingError
from archloom.spaces import Nb201
from archloom.strategies.rsps import Rsps

SPACE = Nb201(nodes=3)


def test_the_best_of_the_sampled_candidates_is_taken():
    seen = []

    def evaluate(architecture) -> float:
        seen.append(architecture)
        return sum(option == "nor_conv_3x3" for option in architecture.values())

    best = Rsps(SPACE, torch.Generator().manual_seed(0), candidates=40).best(evaluate)
    assert len(seen) == 40
    assert len(set(seen)) > 20
    assert evaluate(best) == max(map(evaluate, seen[:40]))


def test_a_look_in_between_takes_fewer_candidates():
    seen = []
    strategy = Rsps(SPACE, torch.Generator().manual_seed(0), candidates=40, candidates_each_epoch=7)
    strategy.best(lambda architecture: seen.append(architecture) or 0.0, final=False)
    assert len(seen) == 7


def test_every_step_trains_a_path_drawn_uniformly():
    class Weights:
        def fit(self, batch, gates):
            paths.append(tuple(gate.index for gate in gates.values()))
            raise StopIteration

    paths: list[tuple[int, ...]] = []
    strategy = Rsps(SPACE, torch.Generator().manual_seed(0))

    class Batch:
        train = None

    for _ in range(1000):
        with pytest.raises(StopIteration):
            strategy.step(Weights(), Batch())
    counts = torch.bincount(torch.tensor(paths).flatten(), minlength=5)
    assert counts.min() > 500  # 600 each is expected
    assert len(set(paths)) > 100


def test_all_broken_rules_are_reported_together():
    with pytest.raises(SettingError) as caught:
        Rsps(SPACE, torch.Generator(), candidates=0, candidates_each_epoch=-1)
    assert len(caught.value.problems) == 2
