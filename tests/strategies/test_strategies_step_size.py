"""Learning rates in units of the planned number of steps."""

from __future__ import annotations

import pytest
import torch
from smooth import SPACE, smooth_weights

from archloom.strategies import STRATEGIES
from archloom.strategies.base import Plan
from archloom.strategies.differentiable import Differentiable
from archloom.strategies.step_size import LARGEST, TRAVEL, StepSize

BY_ADAM = [name for name, entry in STRATEGIES.items() if issubclass(entry.load(), Differentiable) and name != "gibbs"]


def begin(name: str, *, steps: int, **settings) -> Differentiable:
    strategy = STRATEGIES[name].load()(SPACE, torch.Generator().manual_seed(0), **settings)
    strategy.begin(smooth_weights(), Plan(1600, 1600, 32, 32, steps=steps))
    return strategy


def rate_of(strategy: Differentiable) -> float:
    return strategy.optimizer.param_groups[0]["lr"]


def test_the_travel_is_that_of_the_published_protocol():
    assert StepSize(None).learning_rate(50 * 390) == pytest.approx(3e-4)


@pytest.mark.parametrize("steps", [200, 1000, 20_000])
def test_every_search_has_the_same_travel(steps):
    assert steps * StepSize(None).learning_rate(steps) == pytest.approx(TRAVEL)


def test_a_learning_rate_is_bounded():
    assert StepSize(None).learning_rate(1) == StepSize(None).learning_rate(0) == LARGEST
    assert StepSize(None, smallest=0.01).learning_rate(10**6) == 0.01
    assert StepSize(1e-9, smallest=0.01).learning_rate(10) == 1e-9  # stated


@pytest.mark.parametrize("name", BY_ADAM)
def test_the_logits_learn_by_the_number_of_steps_after_the_warm_up(name):
    travel = STRATEGIES[name].load().travel
    assert travel in (TRAVEL, 2 * TRAVEL)  # the successors of DARTS publish twice its learning rate
    assert rate_of(begin(name, steps=200, warmup=0.0)) == pytest.approx(min(LARGEST, travel / 200))
    assert rate_of(begin(name, steps=2000, warmup=0.5)) == pytest.approx(travel / 1000)


@pytest.mark.parametrize("name", BY_ADAM)
def test_a_stated_learning_rate_stays(name):
    assert rate_of(begin(name, steps=200, learning_rate=3e-4)) == 3e-4
