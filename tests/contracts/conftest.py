"""Tiny searches of every kind, for the contracts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from archloom.data.arrays import from_tensors
from archloom.searches.build import build_search
from archloom.searches.loop import SearchLoop
from archloom.searches.spec import SearchSpec

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
}
WIDTHS_CHOSEN = ("proxylessnas_enlarged_32", "mobilenet_v3_like_32", "nats_size")


@pytest.fixture(scope="session")
def tiny_data():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (48, 3, 8, 8), dtype=torch.uint8, generator=generator)
    return from_tensors(images, torch.arange(48) % 3)


@pytest.fixture
def make_search(tiny_data):
    def make(
        strategy_name: str, space_name: str = "nb201_mini", *, seed: int = 0, data=None, **sections: Any
    ) -> SearchLoop:
        settings = {
            "seed": seed,
            "space": {"name": space_name, **SMALL_SPACES.get(space_name, {}), **sections.pop("space", {})},
            "strategy": {"name": strategy_name, **sections.pop("strategy", {})},
            "data": {"name": "given"},
            "network": sections.pop("network", {} if space_name in WIDTHS_CHOSEN else {"channels": 2}),
            "search": {
                "epochs": 2,
                "batch_size": 8,
                "evaluation_images": 16,
                "random_baseline_samples": 2,
                "trials": 6,
                "score_epochs": 1,
                "finalist_steps": 1,
                **sections.pop("search", {}),
            },
            "monitor": {"eigenvalue_steps": 1, "eigenvalue_images": 4, **sections.pop("monitor", {})},
            "machine": {"torch_threads": 1, "device": "cpu"},
            **sections,
        }
        return build_search(SearchSpec.resolve(settings), data=data or tiny_data)

    return make
