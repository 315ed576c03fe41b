import math
import random
from dataclasses import replace

import pytest
import torch
from smooth import SPACE, search_batch, smooth_weights

from archloom.objectives.cost_source import ModelledCost
from archloom.objectives.linear_cost import LinearCost
from archloom.objectives.target import Target
from archloom.strategies import STRATEGIES
from archloom.strategies.base import Plan
from archloom.strategies.differentiable import Differentiable

WEIGHTS = {((d.name, option),): 10.0 * place for d in SPACE.decisions for place, option in enumerate(d.options)}
SOURCE = ModelledCost(LinearCost(SPACE, 5.0, WEIGHTS), unit="ms", provenance="by hand")
WITH_LOGITS = [name for name, entry in STRATEGIES.items() if issubclass(entry.load(), Differentiable)]


def with_logits(name: str = "darts") -> Differentiable:
    strategy = STRATEGIES[name].load()(SPACE, torch.Generator().manual_seed(0))
    strategy.policy.double()
    with torch.no_grad():
        strategy.policy.values.mul_(1000)
    return strategy


def test_a_gradient_is_left_as_it_is_where_there_is_no_target():
    gradient = torch.randn(12, dtype=torch.float64)
    assert with_logits().add_target_gradient(gradient) is gradient


@pytest.mark.parametrize("value", [30.0, 80.0])
def test_a_target_adds_the_gradient_of_the_expected_cost(value):
    strategy = with_logits()
    target = Target(source=SOURCE, value=value, beta=-0.4)
    strategy.set_target(target)
    added = strategy.add_target_gradient(torch.zeros(12, dtype=torch.float64))
    for place in range(12):
        ends = []
        for step in (1e-6, -1e-6):
            moved = strategy.policy.values.detach().clone()
            moved[place] += step
            rows = strategy.policy.split(moved)
            expected = SOURCE.expected_cost({name: row.softmax(dim=0) for name, row in rows.items()})
            ends.append(0.4 * abs(float(expected) / value - 1))
        assert float(added[place]) == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-7)
    assert added.norm() > 1e-3


@pytest.mark.parametrize("name", WITH_LOGITS)
def test_a_heavy_target_moves_the_expected_cost_of_every_strategy_towards_it(name):
    """By the same steps with and without it; a flipped sign would move it away."""

    def expected_after(value: float | None) -> float:
        strategy = STRATEGIES[name].load()(SPACE, torch.Generator().manual_seed(0))
        strategy.policy.double()
        if value is not None:
            strategy.set_target(Target(source=SOURCE, value=value, beta=-20.0))
        weights = smooth_weights()
        strategy.begin(weights, Plan(12, 12, 12, 12, steps=30))
        for step in range(30):
            strategy.step(weights, search_batch(step, epoch=2))  # after any warm-up
        return SOURCE.expected_cost({n: row.softmax(dim=0) for n, row in strategy.policy.rows().items()}).item()

    assert expected_after(5.0) < expected_after(None) < expected_after(100.0)


# --- the share of a search that trains the weights alone


@pytest.mark.parametrize(
    ("progress", "epoch", "epochs", "warming"),
    [
        (0.0, 0, 1, True),
        (0.2, 0, 1, True),
        (0.25, 0, 1, False),  # within the only epoch
        (0.2499, 2, 10, True),
        (0.75, 9, 10, False),
    ],
)
def test_a_warm_up_is_a_share_of_the_steps_also_within_one_epoch(progress, epoch, epochs, warming):
    strategy = STRATEGIES["darts"].load()(SPACE, torch.Generator().manual_seed(0), warmup=0.25)
    batch = replace(search_batch(0, epoch=epoch, epochs=epochs), progress=progress)
    assert strategy.is_warming_up(batch) == warming


def test_steps_after_the_last_that_meet_a_target_are_no_warm_up():
    strategy = STRATEGIES["darts"].load()(SPACE, torch.Generator().manual_seed(0), warmup=0.75)
    assert not strategy.is_warming_up(replace(search_batch(0, epoch=9, epochs=10), progress=0.5))


# --- reading the probabilities


def with_row(*row: float) -> Differentiable:
    """Return a strategy whose decisions all have these probabilities."""
    strategy = STRATEGIES["gdas"].load()(SPACE, torch.Generator().manual_seed(0))
    with torch.no_grad():
        strategy.policy.values.copy_(torch.tensor(row * len(SPACE.decisions)).log())
    return strategy


def test_samples_and_log_probabilities_follow_the_probabilities():
    strategy, rng = with_row(0.1, 0.2, 0.3, 0.4), random.Random(0)
    samples = [strategy.sample(rng) for _ in range(2000)]
    first = SPACE.decisions[0]
    for option, wanted in zip(first.options, (0.1, 0.2, 0.3, 0.4), strict=True):
        assert [one[first.name] for one in samples].count(option) / 2000 == pytest.approx(wanted, abs=0.04)
    options = {
        decision.name: decision.options[place] for decision, place in zip(SPACE.decisions, (0, 1, 3), strict=True)
    }
    assert strategy.log_probability(SPACE.check(options)) == pytest.approx(math.log(0.1 * 0.2 * 0.4), rel=1e-4)


def test_a_search_about_uniform_is_undecided():
    assert with_row(0.23, 0.23, 0.24, 0.30).undecided() == (
        "the largest probability is 0.30 of a uniform 0.25: this is a random choice"
    )
    assert with_row(0.22, 0.22, 0.24, 0.32).undecided() is None
