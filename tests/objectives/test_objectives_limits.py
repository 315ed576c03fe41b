"""Limits: exact, deterministic, and the architectures that keep to them against brute force."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from archloom.core.errors import SettingError
from archloom.families.defects import find_defect
from archloom.objectives import CostTable, limits
from archloom.objectives.cost_source import CountedCost, ModelledCost
from archloom.objectives.limits import Limit, LimitSettings, cheapest, format_amount, largest, repair
from archloom.objectives.linear_cost import LinearCost
from archloom.spaces import SPACES, Architecture, Darts, Nb201, SearchSpace

SPACE = Nb201(nodes=3, cells_per_stage=1)
COUNTED = CountedCost(
    SPACE, CostTable(SPACE, classes=10, image_shape=(3, 8, 8), channels=4), "multiply_adds", provenance="here"
)
COST = COUNTED.measure
COSTS = sorted({COST(one) for one in SPACE.enumerate()})
LIMITS = [COSTS[0], COSTS[1], COSTS[1] - 1, (COSTS[0] + COSTS[-1]) / 2, COSTS[-2], COSTS[-1], 10 * COSTS[-1]]


def _live() -> list[Architecture]:
    return [one for one in SPACE.enumerate() if SPACE.prune(one) == one]


def _named(name: str, **settings: Any) -> SearchSpace:
    entry = SPACES.find(name)
    space: SearchSpace = entry.load()(**{**entry.settings, **settings})
    return space


# --- a limit


def test_a_limit_allows_its_value_exactly_and_nothing_above() -> None:
    architecture = next(one for one in SPACE.enumerate() if COST(one) == COSTS[3])
    assert Limit(source=COUNTED, value=COSTS[3]).allows(architecture)
    assert not Limit(source=COUNTED, value=math.nextafter(COSTS[3], 0)).allows(architecture)


def test_the_sentence_names_cost_network_and_limit() -> None:
    weights = {((d.name, option),): 0.0 for d in SPACE.decisions for option in d.options}
    model = LinearCost(SPACE, 54.1e6, weights)
    some = next(SPACE.enumerate())
    counted = Limit(source=ModelledCost(model, unit="multiply-adds", provenance="here"), value=60e6)
    assert counted.sentence(some) == "54.1M multiply-adds in the final network, at most 60M allowed"
    latency = ModelledCost(LinearCost(SPACE, 12.94, weights), unit="ms", provenance="pixel3 in the nb201 table")
    sentence = Limit(source=latency, value=13).sentence(some)
    assert sentence == "12.94 ms by pixel3 in the nb201 table, at most 13 ms allowed"
    latency.caveat = "of networks with another space.cells_per_stage"
    assert f", {latency.caveat}, at most" in Limit(source=latency, value=13).sentence(some)


@pytest.mark.parametrize(
    ("amount", "text"),
    [(54.1e6, "54.1M"), (60e6, "60M"), (1234.5e6, "1234M"), (60_000, "60,000"), (999_999, "999,999"), (12.94, "12.94")],
)
def test_amounts_have_four_digits(amount: float, text: str) -> None:
    assert format_amount(amount) == text


def test_a_limit_as_a_target_is_one_sided() -> None:
    target = Limit(source=COUNTED, value=COSTS[3], beta=-0.7).to_target()
    assert (target.one_sided, target.value, target.beta) == (True, COSTS[3], -0.7)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"value": 3.0}, "limit.value needs limit.metric, got 3.0"),
        ({"metric": "parameters"}, "limit.metric 'parameters' needs limit.value"),
        ({"metric": "parameters", "value": 0.0}, "limit.value must be above 0, got 0.0"),
        ({"metric": "latency", "value": 3.0}, "limit.metric 'latency' needs limit.source"),
        ({"metric": "parameters", "value": 3.0, "source": "here.json"}, "limit.source is for limit.metric 'latency'"),
        ({"beta": 0.1}, "limit.beta must be below 0, got 0.1"),
    ],
)
def test_settings_of_a_limit_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        LimitSettings(**settings)


# --- the largest and the cheapest


@pytest.mark.parametrize("value", LIMITS)
def test_the_largest_is_that_of_brute_force(value: float) -> None:
    found = largest(SPACE, COST, lambda one: COST(one) <= value)
    assert found is not None and SPACE.prune(found) == found
    assert COST(found) == max(COST(one) for one in _live() if COST(one) <= value)


def test_of_equal_costs_the_longest_skips_win() -> None:
    only = min(cost for cost in COSTS if cost > COSTS[0])  # one 1x1 convolution
    found = largest(SPACE, COST, lambda one: COST(one) <= only)
    assert found is not None
    assert SPACE.format(found) == "|skip_connect~0|+|skip_connect~0|nor_conv_1x1~1|"
    assert find_defect(SPACE, found) is None


def test_the_cheapest_is_that_of_brute_force() -> None:
    found = cheapest(SPACE, COST)
    assert found is not None and COST(found) == COSTS[0]
    above = cheapest(SPACE, COST, lambda one: COST(one) > COSTS[2])
    assert above is not None and COST(above) == min(COST(one) for one in _live() if COST(one) > COSTS[2])


def test_nothing_is_found_where_nothing_is_allowed() -> None:
    assert largest(SPACE, COST, lambda one: False) is None
    assert cheapest(SPACE, COST, lambda one: False) is None


@pytest.mark.parametrize("value", LIMITS)
def test_single_changes_find_allowed_architectures_that_no_single_change_enlarges(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_ENUMERATED", 0)
    found = largest(SPACE, COST, lambda one: COST(one) <= value)
    assert found is not None and COST(found) <= value
    for decision, option in ((d, o) for d in SPACE.decisions for o in d.options):
        changed = found.with_option(decision.name, option)
        assert not COST(found) < COST(changed) <= value or SPACE.prune(changed) != changed
    best = max(COST(one) for one in _live() if COST(one) <= value)
    assert COST(found) >= 0.9 * best
    least = cheapest(SPACE, COST)
    assert least is not None and COST(least) == COSTS[0]


def test_no_architecture_is_found_by_single_changes_below_the_cheapest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_ENUMERATED", 0)
    assert largest(SPACE, COST, lambda one: COST(one) < COSTS[0]) is None
    assert cheapest(SPACE, COST, lambda one: COST(one) < COSTS[0]) is None


def test_the_largest_darts_cell_keeps_two_inputs_per_node() -> None:
    space = Darts(cells=3, nodes=2)
    table = CostTable(space, classes=10, image_shape=(3, 8, 8), channels=4)

    def cost(architecture: Architecture) -> float:
        return table.cost(architecture).multiply_adds

    top = largest(space, cost)
    assert top is not None and set(top.values()) == {"sep_conv_5x5", "none"}
    assert list(top.values()).count("sep_conv_5x5") == 8  # two cells, two nodes, two inputs
    least = cheapest(space, cost)
    assert least is not None and not any("conv" in option for option in least.values())
    assert sum(option != "none" for option in least.values()) == 8
    value = (cost(top) + cost(least)) / 2
    fitting = largest(space, cost, lambda one: cost(one) <= value)
    assert fitting is not None and 0.9 * value < cost(fitting) <= value
    assert space.check(fitting) == fitting and sum(option != "none" for option in fitting.values()) == 8


def test_the_largest_mobile_network_has_the_most_of_everything() -> None:
    space = _named("mobilenet_v3_like_32", layers=(2, 2, 2), width_multipliers=(1.0, 2.0), expansions=(1, 3))
    table = CostTable(space, classes=10, image_shape=(3, 16, 16))
    source = CountedCost(space, table, "multiply_adds", provenance="here")
    top, least = largest(space, source.measure), cheapest(space, source.measure)
    assert top is not None and least is not None
    for decision in space.decisions:  # options rise, and 'zero' and 'on' are the second ones
        expected = "bottleneck" if decision.name.endswith(".layer") else decision.options[-1]
        assert top[decision.name] == expected
        if decision.name in space.active(least) and not decision.name.endswith(".layer"):
            assert least[decision.name] == decision.options[0]
    assert all(least[d.name] == "zero" for d in space.decisions if d.name.endswith(".layer"))
    value = 0.3 * source.measure(top)
    fitting = largest(space, source.measure, lambda one: source.measure(one) <= value)
    assert fitting is not None and 0.97 * value < source.measure(fitting) <= value


def test_operations_shrink_before_any_is_left_out() -> None:
    space = _named("proxylessnas_32")
    table = CostTable(space, classes=10, image_shape=(3, 16, 16))
    source = CountedCost(space, table, "multiply_adds", provenance="here")
    whole = space.references()["MobileNetV2-like"]
    fitting = largest(space, source.measure, lambda one: source.measure(one) <= source.measure(whole))
    assert fitting is not None and "zero" not in fitting.values()
    assert source.measure(fitting) > 0.97 * source.measure(whole)


# --- repair

PREFERENCE = {"none": 0.05, "skip_connect": 0.1, "nor_conv_1x1": 0.2, "nor_conv_3x3": 0.6, "avg_pool_3x3": 0.05}


def _log_probability(architecture: Architecture) -> float:
    shift = {"0->1": 1.0, "0->2": 1.1, "1->2": 1.3}  # no two edges alike
    return sum(shift[name] * math.log(PREFERENCE[option]) for name, option in architecture.items())


@pytest.mark.parametrize("value", LIMITS)
def test_repair_returns_what_no_allowed_single_change_improves(value: float) -> None:
    start = Architecture({decision.name: "nor_conv_3x3" for decision in SPACE.decisions})
    found = repair(SPACE, start, _log_probability, COST, lambda one: COST(one) <= value)
    assert found is not None and COST(found) <= value
    for decision, option in itertools.product(SPACE.decisions, SPACE.decisions[0].options):
        changed = found.with_option(decision.name, option)
        assert COST(changed) > value or _log_probability(changed) <= _log_probability(found)
    best = max(_log_probability(one) for one in SPACE.enumerate() if COST(one) <= value)
    assert _log_probability(found) >= best - 1.0


def test_repair_leaves_an_allowed_architecture_alone() -> None:
    start = Architecture({decision.name: "none" for decision in SPACE.decisions})
    assert repair(SPACE, start, _log_probability, COST, lambda one: True) == start


def test_repair_loses_the_least_log_probability_per_cost_saved() -> None:
    """Two 3x3 convolutions and one 1x1: of all single changes, the cheapest in log-probability fits."""
    start = SPACE.parse("|nor_conv_3x3~0|+|nor_conv_1x1~0|nor_conv_3x3~1|")
    likes = {**PREFERENCE, "nor_conv_1x1": 0.001}

    def log_probability(one: Architecture) -> float:
        return sum(math.log(likes[option]) for option in one.values())

    found = repair(SPACE, start, log_probability, COST, lambda one: COST(one) < COST(start))
    assert found == start.with_option("0->2", "skip_connect")  # raises the log-probability and saves cost


def test_repair_gives_up_where_no_change_leads_to_an_allowed_architecture() -> None:
    start = Architecture({decision.name: "nor_conv_3x3" for decision in SPACE.decisions})
    assert repair(SPACE, start, _log_probability, COST, lambda one: False) is None


def test_repair_survives_impossible_options() -> None:
    def log_probability(one: Architecture) -> float:
        return 0.0 if set(one.values()) == {"nor_conv_3x3"} else -math.inf

    start = Architecture({decision.name: "nor_conv_3x3" for decision in SPACE.decisions})
    found = repair(SPACE, start, log_probability, COST, lambda one: COST(one) <= COSTS[0])
    assert found is not None and COST(found) == COSTS[0]
