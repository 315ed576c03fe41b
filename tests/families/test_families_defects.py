"""Defects: cells that connect nothing, and cells in which nothing learns."""

from __future__ import annotations

import random

import pytest

from archloom.families.defects import find_defect
from archloom.spaces import SPACES, Darts, Nb201

SPACE = Nb201()
IDENTITY = "the cell is an identity: no operation learns"
POOLS = "no operation of the cell learns: it only pools and skips"
DISCONNECTED = "no path connects input and output"


@pytest.mark.parametrize(
    ("text", "defect"),
    [
        ("|skip_connect~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|skip_connect~2|", IDENTITY),
        ("|skip_connect~0|+|none~0|avg_pool_3x3~1|+|skip_connect~0|none~1|skip_connect~2|", POOLS),
        ("|none~0|+|none~0|nor_conv_3x3~1|+|none~0|nor_conv_3x3~1|nor_conv_3x3~2|", DISCONNECTED),
        ("|nor_conv_3x3~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|", IDENTITY),  # the convolution is dead
        ("|avg_pool_3x3~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|", IDENTITY),  # so is the pool
        ("|none~0|+|none~0|none~1|+|nor_conv_1x1~0|none~1|none~2|", None),
    ],
)
def test_defects_of_a_cell_follow_from_its_live_operations(text: str, defect: str | None) -> None:
    assert find_defect(SPACE, SPACE.parse(text)) == defect


def test_a_cell_of_pools_is_no_defect_beside_one_that_learns() -> None:
    space = Darts()
    assert find_defect(space, space.references()["DARTS V2"]) is None  # its reduction cell pools and skips
    skips = {d.name: "skip_connect" if d.name.endswith(("0->2", "1->2")) else "none" for d in space.decisions}
    assert find_defect(space, space.check(skips)) == IDENTITY
    empty = {name: "none" if name.startswith("reduce") else option for name, option in skips.items()}
    assert find_defect(space, space.check({**empty, "normal/0->2": "sep_conv_3x3"})) == DISCONNECTED


@pytest.mark.parametrize("name", ["nats_size", "proxylessnas_32"])
def test_networks_of_layers_learn(name: str) -> None:
    entry = SPACES.find(name)
    space = entry.load()(**entry.settings)
    assert find_defect(space, space.sample(random.Random(0))) is None
