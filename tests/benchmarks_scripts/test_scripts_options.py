"""The spaces and paths that `benchmarks/options.py` compares."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import ModuleType

import pytest

from archloom.objectives import CostTable

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("options")


@pytest.mark.parametrize("options", [6, 42, 252])
def test_a_layer_has_so_many_options(script: ModuleType, options: int) -> None:
    space = script.space_of(options)
    parts = ("block2.width", *(f"block2.layer2.{part}" for part in ("kernel", "expansion", "squeeze")))
    assert math.prod(len(space.place(name).options) for name in parts) == options


def test_all_take_the_same_networks(script: ModuleType) -> None:
    costs = []
    for options in script.OPTIONS:
        table = CostTable(script.space_of(options), classes=10, image_shape=(3, 32, 32))
        costs.append([table.cost(path) for path in script.paths(options)[:3]])
    assert costs[0] == costs[1] == costs[2]


def test_a_warm_up_opens_every_operation_and_the_largest_width(script: ModuleType) -> None:
    space = script.space_of(252)
    gates = script.warmed_up(space)
    assert gates["block2.width"].index == len(space.decision("block2.width").options) - 1
    assert gates["block2.layer2.kernel"].weights.tolist() == pytest.approx([1 / 3] * 3)
