"""Targets: three rewards by hand, the penalty of a loss, and the beta that would hold one."""

from __future__ import annotations

import math

import pytest
import torch

from archloom.core.errors import SettingError
from archloom.objectives.cost_source import ModelledCost
from archloom.objectives.linear_cost import LinearCost
from archloom.objectives.target import Target, TargetSettings, make_target, suggest_beta
from archloom.spaces import Nb201

SPACE = Nb201(nodes=3, operations=("none", "wide", "narrow", "skip"))
WEIGHTS = {((d.name, option),): 10.0 * place for d in SPACE.decisions for place, option in enumerate(d.options)}
SOURCE = ModelledCost(LinearCost(SPACE, 0.0, WEIGHTS), unit="ms", provenance="by hand")


def of_cost(cost: float):
    return next(one for one in SPACE.enumerate() if SOURCE.measure(one) == cost)


@pytest.mark.parametrize(
    ("reward", "cost", "wanted"),
    [
        ("absolute", 40.0, 0.8),
        ("absolute", 60.0, 0.8 - 0.1 * 0.5),
        ("absolute", 20.0, 0.8 - 0.1 * 0.5),  # as bad as too much of it
        ("soft", 40.0, 0.8),
        ("soft", 80.0, 0.8 * 2**-0.1),
        ("soft", 20.0, 0.8 * 0.5**-0.1),  # cheaper is better, without end
        ("soft", 0.0, 0.8 * 1e-3**-0.1),
        ("hard", 80.0, 0.8 * 2**-0.1),
        ("hard", 20.0, 0.8),  # cheaper is as good
    ],
)
def test_rewards_by_hand(reward, cost, wanted):
    target = Target(source=SOURCE, value=40.0, reward=reward, beta=-0.1)
    assert target.compute_reward(0.8, of_cost(cost)) == pytest.approx(wanted, abs=1e-15)


@pytest.mark.parametrize("reward", ["absolute", "soft", "hard"])
@pytest.mark.parametrize("value", [15.0, 80.0])
def test_the_penalty_has_the_gradient_of_finite_differences(reward, value):
    target = Target(source=SOURCE, value=value, reward=reward, beta=-0.3)
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randn(4, dtype=torch.float64, generator=generator).requires_grad_() for _ in SPACE.decisions]

    def penalty(*rows):
        return target.penalty({d.name: row.softmax(0) for d, row in zip(SPACE.decisions, rows, strict=True)})

    assert torch.autograd.gradcheck(penalty, rows)
    expected = SOURCE.expected_cost(
        {d.name: row.softmax(0) for d, row in zip(SPACE.decisions, rows, strict=True)}
    ).item()
    relative = expected / value
    by_hand = {"absolute": abs(relative - 1), "soft": math.log(relative), "hard": max(0.0, math.log(relative))}
    assert penalty(*rows).item() == pytest.approx(0.3 * by_hand[reward], rel=1e-12)


def test_the_suggested_beta_is_twice_the_slope_along_the_logarithm_of_cost():
    sampled = [(0.2 + 0.15 * math.log(cost), cost) for cost in (1.0, 3.0, 7.0, 20.0)]
    assert suggest_beta(sampled) == pytest.approx(-0.30)
    assert suggest_beta([(1 - quality, cost) for quality, cost in sampled]) == pytest.approx(-0.30)
    assert suggest_beta([*sampled, (0.0, 0.0)]) == pytest.approx(-0.30)  # what costs nothing has no logarithm
    assert suggest_beta(sampled[:2]) is None
    assert suggest_beta([(0.5, 4.0)] * 5) is None


def test_the_suggested_beta_holds_the_target_and_half_a_slope_does_not():
    """Quality rises by 0.2 for each unit of ln T: the reward is highest at the target only beyond that."""

    def best(beta: float) -> float:
        target = Target(source=SOURCE, value=40.0, beta=beta)
        costs = {SOURCE.measure(one): one for one in SPACE.enumerate() if SOURCE.measure(one) > 0}
        return max(costs, key=lambda cost: target.compute_reward(0.2 * math.log(cost), costs[cost]))

    assert best(-0.4) == 40.0
    assert best(-0.1) > 40.0


def test_a_target_is_met_within_its_tolerance():
    within = Target(source=SOURCE, value=40.0, tolerance=0.25)
    assert within.is_met_by(of_cost(50.0)) and within.is_met_by(of_cost(30.0)) and not within.is_met_by(of_cost(60.0))
    assert within.miss(of_cost(50.0)) == pytest.approx(0.25)


def test_another_beta_changes_nothing_else():
    target = Target(source=SOURCE, value=40.0, reward="hard", tolerance=0.1)
    raised = target.with_beta(-2.0)
    assert (raised.beta, raised.reward, raised.value, raised.tolerance) == (-2.0, "hard", 40.0, 0.1)
    assert target.beta == -0.1


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"metric": "latency", "value": 3.0}, "target.metric 'latency' needs target.source"),
        ({"metric": "parameters"}, "target.metric 'parameters' needs target.value"),
        ({"metric": "parameters", "value": -1.0}, "target.value must be above 0, got -1.0"),
        ({"metric": "parameters", "value": 1.0, "source": "pixel3"}, "target.source is for target.metric 'latency'"),
        ({"value": 3.0}, "target.value needs target.metric, got 3.0"),
        ({"strict": True}, "target.strict needs target.metric"),
        ({"beta": 0.1}, "target.beta must be below 0, got 0.1"),
        ({"tolerance": 0.0}, "target.tolerance must lie in"),
        ({"strict_share": 0.0}, "target.strict_share must be above 0"),
    ],
)
def test_settings_that_make_no_target(settings, problem):
    with pytest.raises(SettingError, match=problem):
        TargetSettings(**settings)


def test_settings_become_a_target():
    settings = TargetSettings(metric="latency", source="pixel3", value=7.0, beta=-0.2, reward="hard")
    target = make_target(settings, SOURCE)
    assert (target.value, target.beta, target.reward, target.tolerance) == (7.0, -0.2, "hard", 0.02)


@pytest.mark.parametrize(
    ("reward", "cost", "wanted"),
    [
        ("absolute", 40.0, 0.8),
        ("absolute", 60.0, 0.8 - 0.1 * 0.5),
        ("absolute", 20.0, 0.8),  # cheaper is as good
        ("soft", 80.0, 0.8 * 2**-0.1),
        ("soft", 20.0, 0.8),
    ],
)
def test_a_one_sided_reward_acts_above_the_value_only(reward, cost, wanted):
    target = Target(source=SOURCE, value=40.0, reward=reward, beta=-0.1, one_sided=True)
    assert target.compute_reward(0.8, of_cost(cost)) == pytest.approx(wanted, abs=1e-15)


def test_a_one_sided_target_is_met_up_to_its_value_exactly():
    target = Target(source=SOURCE, value=40.0, tolerance=0.5, one_sided=True)
    assert target.is_met_by(of_cost(0.0)) and target.is_met_by(of_cost(40.0))
    assert not target.is_met_by(of_cost(50.0))  # within the tolerance of another target


@pytest.mark.parametrize("reward", ["absolute", "soft"])
def test_a_one_sided_penalty_is_zero_below_the_value_and_pulls_down_above(reward):
    even = {d.name: torch.full((4,), 0.25, dtype=torch.float64, requires_grad=True) for d in SPACE.decisions}
    expected = SOURCE.expected_cost(even).item()
    below = Target(source=SOURCE, value=1.1 * expected, reward=reward, beta=-0.3, one_sided=True)
    assert below.penalty(even).item() == 0.0
    above = Target(source=SOURCE, value=expected / 2, reward=reward, beta=-0.3, one_sided=True)
    penalty = above.penalty(even)
    assert penalty.item() == pytest.approx(0.3 if reward == "absolute" else 0.3 * math.log(2))
    penalty.backward()
    gradient = even[SPACE.decisions[0].name].grad
    assert gradient[3] > gradient[0] == 0.0  # the costly option, and the free one
