"""Limits in searches: results never exceed them, whatever the strategy, and have no dead edges."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import archloom
from archloom.core.errors import SettingError
from archloom.data import Facts
from archloom.execution.run_folder import RunFolder
from archloom.objectives.limits import Limit, LimitSettings
from archloom.searches.final_network import FinalNetwork
from archloom.searches.limit_check import check_limit, fit_limit, limit_sentence, make_log_probability
from archloom.searches.result import read_result
from archloom.searches.targets import find_limit
from archloom.spaces import Architecture, Nb201

SPACE = Nb201(nodes=3, cells_per_stage=1)
FINAL = FinalNetwork(SPACE, {"channels": 4}, Facts(10, (1, 8, 8)))
COSTS = sorted({FINAL.cost_table().cost(one).multiply_adds for one in SPACE.enumerate()})
TINY: dict[str, Any] = {
    "network": {"channels": 4},
    "final": {"channels": 4, "depth": 1},
    "search": {"evaluation_images": 40, "random_baseline_samples": 2, "finalist_steps": 0},
    "machine": {"torch_threads": 1},
    "monitor": {"action": "off"},
}


def _limit(value: float) -> Limit:
    limit = find_limit(LimitSettings(metric="multiply_adds", value=value), SPACE, table=None, final=FINAL)
    assert limit is not None
    return limit


def test_no_limit_unless_asked_for() -> None:
    assert find_limit(LimitSettings(), SPACE, table=None, final=FINAL) is None


def test_a_limit_counts_the_final_network() -> None:
    limit = _limit(1e9)
    for architecture in SPACE.enumerate():
        assert limit.cost(architecture) == FINAL.cost_table().cost(architecture).multiply_adds
    assert limit.source.provenance == "counted in the final network: 1 cell per stage, 4 channels, 8x8 images"


def test_a_limit_below_the_cheapest_architecture_is_refused_with_its_cost() -> None:
    assert _limit(COSTS[0]).value == COSTS[0]
    with pytest.raises(SettingError, match=f"limit.value must be at least {COSTS[0]:,} multiply-adds"):
        _limit(COSTS[0] - 1)


def test_an_architecture_that_fits_is_only_pruned() -> None:
    dead = SPACE.parse("|nor_conv_3x3~0|+|nor_conv_1x1~0|none~1|")
    fitted = fit_limit(_limit(COSTS[1]), SPACE, dead, lambda one: 0.0)
    assert SPACE.format(fitted) == "|none~0|+|nor_conv_1x1~0|none~1|"  # the dead convolution costs nothing
    assert fit_limit(None, SPACE, dead, lambda one: 0.0) == fitted


def test_the_least_probable_part_is_given_up() -> None:
    probabilities = {d.name: [0.02, 0.03, 0.05, 0.85, 0.05] for d in SPACE.decisions}
    probabilities["1->2"] = [0.05, 0.43, 0.02, 0.47, 0.03]  # nearly undecided between a skip and a convolution
    log_probability = make_log_probability(SPACE, probabilities)
    start = Architecture(dict.fromkeys(probabilities, "nor_conv_3x3"))
    assert log_probability(start) == pytest.approx(2 * math.log(0.85) + math.log(0.47))
    limit = _limit(FINAL.cost_table().cost(start).multiply_adds - 1)
    assert fit_limit(limit, SPACE, start, log_probability) == start.with_option("1->2", "skip_connect")


def test_the_verdict_names_cost_and_limit() -> None:
    limit, cheap = _limit(COSTS[0]), SPACE.parse("|skip_connect~0|+|none~0|skip_connect~1|")
    checked = check_limit(limit, cheap)
    assert checked is not None and (checked.cost, checked.value) == (COSTS[0], COSTS[0])
    assert limit_sentence(checked) == f"{checked.sentence}."
    assert checked.sentence.endswith("allowed") and limit_sentence(None) == ""


@pytest.mark.parametrize(
    ("strategy", "more"),
    [
        ("darts", {"search": {"epochs": 1}}),
        ("gdas", {"search": {"epochs": 1}}),
        ("rsps", {"search": {"epochs": 1}}),
        ("random_search", {"search": {"trials": 5}}),
        ("regularized_evolution", {"search": {"trials": 5}}),
    ],
)
@pytest.mark.parametrize("value", [COSTS[0], COSTS[2]])
def test_no_result_exceeds_the_limit(strategy: str, more: dict[str, Any], value: float, tmp_path: Path) -> None:
    settings = {
        **TINY,
        "search": {**TINY["search"], **more["search"]},
        "limit": {"metric": "multiply_adds", "value": value},
    }
    result = archloom.search("nb201_mini", strategy, "digits", seed=0, out=tmp_path / "run", settings=settings)
    assert result.cost.multiply_adds <= value and result.space.prune(result.architecture) == result.architecture
    assert result.limit is not None and result.limit.cost == result.cost.multiply_adds
    assert "at most" in result.verdict and result.cost_text.endswith("1 cell per stage, 4 channels, 8x8 images")
    read = read_result(RunFolder(result.folder), result.space)
    assert read is not None and (read.limit, read.final_network) == (result.limit, result.final_network)
