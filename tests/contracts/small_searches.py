"""Tiny searches of every strategy on every space."""

from __future__ import annotations

from typing import Any

from archloom.core.settings import merge
from archloom.searches.loop import SearchLoop
from archloom.testing import make_search

SMALL_SPACES = {
    "nb201": {"cells_per_stage": 1},
    "darts": {"cells": 3, "nodes": 2},
    "darts_gdas": {"cells_per_block": 1, "nodes": 2},
    "darts_frc": {"cells_per_block": 1},
    "s1": {"cells": 3},
    "s2": {"cells": 4},
    "proxylessnas_enlarged_32": {
        "stem": 8,
        "separable": 8,
        "blocks": [8, 16],
        "layers": [1, 2],
        "strides": [2, 1],
        "head": [16],
    },
    "mobilenet_v3_like_32": {"stem": 8, "blocks": [8, 16], "layers": [2, 1], "strides": [1, 2], "head": [16, 24]},
    "nats_size": {"options": [2, 4, 6]},
    "recurrent": {"nodes": 3},
    "recurrent_enas": {"nodes": 3},
}
TEXTS = ("recurrent", "recurrent_enas")
WIDTHS_CHOSEN = ("proxylessnas_enlarged_32", "mobilenet_v3_like_32", "nats_size")


def network_of(space: str) -> dict[str, Any]:
    if space in TEXTS:
        return {"hidden": 4}
    return {} if space in WIDTHS_CHOSEN else {"channels": 2}


def make_small_search(strategy: str, space: str = "nb201_mini", /, **sections: Any) -> SearchLoop[Any]:
    small = {"space": SMALL_SPACES.get(space, {}), "network": network_of(space)}
    seed = sections.pop("seed", 0)
    return make_search(strategy, space, seed=seed, **merge(small, sections))
