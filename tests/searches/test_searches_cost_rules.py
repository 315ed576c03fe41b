from __future__ import annotations

import pytest
import torch

from archloom.objectives.cost_source import CostSource
from archloom.objectives.limits import Limit
from archloom.objectives.target import Target
from archloom.searches.cost_rules import SLOPE_SAMPLES, CostRules
from archloom.spaces import Nb201
from archloom.strategies.base import OneShot

SPACE = Nb201(nodes=2, cells_per_stage=1)
COSTS = {"none": 0.0, "skip_connect": 1.0, "avg_pool_3x3": 2.0, "nor_conv_1x1": 4.0, "nor_conv_3x3": 9.0}
SKIP, SMALL, LARGE = (SPACE.parse(f"|{name}~0|") for name in ("skip_connect", "nor_conv_1x1", "nor_conv_3x3"))


class Table(CostSource):
    unit, provenance = "ms", "test"

    def measure(self, architecture):
        return COSTS[architecture["0->1"]]

    def expected_cost(self, probabilities):
        raise AssertionError("no gradient is asked for")


SOURCE = Table()


class Still(OneShot):
    def __init__(self) -> None:
        super().__init__(SPACE, torch.Generator().manual_seed(0))

    def step(self, weights, batch):
        return {}

    def best(self, evaluate, *, final=True):
        return LARGE


def make(**rules) -> CostRules:
    made = CostRules(strategy=Still(), **rules)
    made.begin()
    return made


def test_without_target_and_limit_everything_is_allowed_and_nothing_costs():
    rules = make()
    assert rules.allow(LARGE)
    assert rules.compute_reward(0.5, LARGE) == 0.5
    assert rules.fit(LARGE, lambda one: 0.0) == LARGE
    assert rules.strategy.target is None


def test_a_target_allows_what_meets_it_and_rewards_by_distance():
    rules = make(target=Target(source=SOURCE, value=4.0, beta=-0.1))
    assert [rules.allow(one) for one in (SKIP, SMALL, LARGE)] == [False, True, False]
    assert rules.compute_reward(0.5, SMALL) == 0.5
    assert rules.compute_reward(0.5, LARGE) == pytest.approx(0.5 - 0.1 * (9 / 4 - 1))
    assert rules.strategy.target is rules.target


def test_a_limit_puts_what_exceeds_it_below_every_path_that_does_not():
    rules = make(limit=Limit(source=SOURCE, value=4.0))
    assert [rules.allow(one) for one in (SKIP, SMALL, LARGE)] == [True, True, False]
    assert rules.compute_reward(1.0, LARGE) < rules.compute_reward(0.0, SKIP)
    assert rules.fit(LARGE, lambda one: COSTS[one["0->1"]]) == SMALL
    assert rules.strategy.target is not None  # the strategy learns of the limit while it searches


def enforce(rules: CostRules, *, total: int = 100) -> tuple[list[float], object]:
    shares: list[float] = []
    result = rules.enforce(
        total=total,
        sample=lambda: [(0.5, cost) for cost in range(1, SLOPE_SAMPLES)],
        begin=lambda: shares.append,
        derive=lambda: SMALL if len(shares) >= 10 else LARGE,
    )
    return shares, result


def test_extra_steps_are_taken_until_the_target_is_met():
    shares, strict = enforce(make(target=Target(source=SOURCE, value=4.0), strict_share=0.5))
    assert shares == pytest.approx([step / 50 for step in range(10)])
    assert (strict.steps, strict.most_steps, strict.met) == (10, 50, True)


def test_extra_steps_need_a_share_and_a_target_that_is_missed():
    assert enforce(make(target=Target(source=SOURCE, value=4.0))) == ([], None)
    assert enforce(make(strict_share=0.5)) == ([], None)
    assert enforce(make(target=Target(source=SOURCE, value=9.0), strict_share=0.5)) == ([], None)
