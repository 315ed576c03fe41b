"""The spaces by name: each can be built, is of the published size, and is described."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest

from archloom.core.errors import SettingError
from archloom.spaces import NONE, SPACES, SearchSpace

CARDINALITIES = {
    "nb201": 5**6,
    "nb201_mini": 5**3,
    "darts": (180 * 7**8) ** 2,
    "darts_gdas": (180 * 7**8) ** 2,
    "darts_frc": 180 * 7**8,
    "s1": 7**16,  # 3.3e13
    "s2": 2**160,  # 1.5e48
    "proxylessnas": 3 * 6**6 * 12**15,  # 2.2e21
    "proxylessnas_enlarged": 3 * 6**6 * 12**15 * (4**3 * 6 * 7**5),  # 1.4e28
    "mobilenet_v3_like": 2 * 6 * 36**5 * 72**15 * (4**2 * 6 * 7**5),  # 8.5e42
    "mobilenet_v3_widths": 6 * 48**5 * 96**15,
    "proxylessnas_32": 3 * 6**3 * 12**6,
    "proxylessnas_enlarged_32": 3 * 6**3 * 12**6 * (4**3 * 6 * 7**2),
    "mobilenet_v3_like_32": 2 * 6 * 36**3 * 72**6 * (4**2 * 6 * 7**3),
    "nats_size": 8**5,
    "recurrent": math.factorial(8) * 4**8,
    "recurrent_enas": math.factorial(11) * 4**11,
}


def build(name: str) -> SearchSpace:
    entry = SPACES.find(name)
    space = entry.load()(**entry.settings)
    assert isinstance(space, SearchSpace)
    return space


def test_every_space_has_a_known_size() -> None:
    assert {name: build(name).cardinality for name in SPACES} == CARDINALITIES


def test_the_sizes_are_those_that_papers_print() -> None:
    assert f"{CARDINALITIES['s1']:.1e}" == "3.3e+13"
    assert f"{CARDINALITIES['s2']:.1e}" == "1.5e+48"


@pytest.mark.parametrize("name", SPACES)
def test_every_space_is_described_hashable_and_equal_to_itself(name: str) -> None:
    assert len(SPACES[name].describe()) > 20
    assert "\n" not in SPACES[name].describe()
    assert hash(build(name)) == hash(build(name))
    assert build(name) == build(name)
    assert build(name).family in ("darts", "mobile", "nb201", "recurrent", "widths")


def test_s1_has_no_none_and_s2_has_twenty_cells_of_two_operations() -> None:
    assert all(NONE not in decision.options for decision in build("s1").decisions)
    s2 = build("s2")
    assert len(s2.decisions) == 160
    assert {decision.options for decision in s2.decisions} == {("skip_connect", "sep_conv_3x3")}


def test_an_unknown_space_suggests() -> None:
    with pytest.raises(SettingError, match=r"^unknown space 'nb202'; did you mean 'nb201'\?$"):
        SPACES.find("nb202")


def test_spaces_and_benchmarks_load_without_torch() -> None:
    modules = "archloom.spaces, archloom.benchmarks.converter, archloom.benchmarks.digits"
    program = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        *(("nb201", setting) for setting in ({"nodes": 10**9}, {"cells_per_stage": 2**31})),
        *(("darts", setting) for setting in ({"nodes": 65}, {"cells": 1001}, {"cells_per_block": 10**12})),
        *(("proxylessnas", setting) for setting in ({"layers": [10**9] * 6}, {"stem": 2**17})),
        ("nats_size", {"cells_per_stage": 10**30}),
    ],
)
def test_sizes_beyond_reason_are_refused_at_once(name: str, setting: dict[str, Any]) -> None:
    entry = SPACES[name]
    with pytest.raises(SettingError, match=r"must lie in \d+\.\.\d+"):
        entry.load()(**{**entry.settings, **setting})
