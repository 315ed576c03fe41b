import random

import pytest
import torch

from archloom.spaces import Nb201
from archloom.strategies.base import Trial
from archloom.strategies.regularized_evolution import RegularizedEvolution

SPACE = Nb201(nodes=3)


def make(**settings) -> RegularizedEvolution:
    return RegularizedEvolution(SPACE, torch.Generator().manual_seed(0), **settings)


def tell(strategy: RegularizedEvolution, scores: list[float]) -> list[dict[str, str]]:
    rng = random.Random(1)
    reported = [SPACE.sample(rng) for _ in scores]
    for number, (architecture, score) in enumerate(zip(reported, scores, strict=True)):
        strategy.tell(Trial(number, architecture), score)
    return [dict(architecture) for architecture in reported]


def changes(first, second) -> int:
    return sum(first[name] != second[name] for name in first)


def test_the_oldest_leaves_however_good_it_is():
    strategy = make(population=3)
    reported = tell(strategy, [99.0, 1.0, 2.0, 3.0])
    assert strategy.members == [(reported[1], 1.0), (reported[2], 2.0), (reported[3], 3.0)]


def test_a_child_differs_from_the_best_of_the_sample_in_one_place():
    strategy = make(population=4, sample=100)  # a hundred draws of four miss the best one time in 10^12
    reported = tell(strategy, [1.0, 9.0, 3.0, 2.0])
    children = [strategy.ask(number).architecture for number in range(20)]
    assert all(changes(reported[1], child) == 1 for child in children)
    assert len(set(children)) > 5


@pytest.mark.parametrize(("sample", "share"), [(1, 0.25), (2, 7 / 16)])
def test_the_tournament_draws_with_replacement(sample, share):
    """The best of four is the parent as often as at least one draw of the tournament is it: 1 - (3/4)^sample."""
    strategy = make(population=4, sample=sample)
    space_apart = [SPACE.parse(f"|{o}~0|+|{o}~0|{o}~1|") for o in SPACE.operations[:4]]  # three changes from each other
    for number, architecture in enumerate(space_apart):
        strategy.tell(Trial(number, architecture), float(number))
    draws = 2000
    best = sum(changes(space_apart[3], strategy.ask(number).architecture) == 1 for number in range(draws))
    assert best / draws == pytest.approx(share, abs=0.04)  # over three standard deviations


def test_the_first_trials_are_drawn_uniformly():
    strategy, same = make(population=5), make(population=5)
    for number in range(5):
        trial = strategy.ask(number)
        assert trial.architecture == SPACE.sample(same.python_random())
        strategy.tell(trial, 0.0)
    assert changes(strategy.members[0][0], strategy.ask(5).architecture) <= 3
