"""Costs: every number of the published table, and every built network against the table made without building it."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from archloom.core.errors import SettingError
from archloom.families import build_network
from archloom.objectives import Cost, CostTable, cost_of
from archloom.spaces import NONE, SPACES, Architecture, Darts, Nb201, SearchSpace
from archloom.spaces.nb201 import OPERATIONS
from archloom.supernet import EveryOption, Gate, Only

SHAPE = (3, 9, 9)
MINI = Nb201(nodes=3, cells_per_stage=1)


def space_named(name: str) -> SearchSpace:
    """A space of the catalogue, with small cells and few of them."""
    kind, settings = SPACES[name].load(), SPACES[name].settings
    if kind is Nb201:
        return Nb201(**{**settings, "cells_per_stage": 1})
    blocks = min(1, settings.get("cells_per_block", 0))
    return Darts(**{**settings, "nodes": 2, "cells": 5, "cells_per_block": blocks})


# --- single layers


@pytest.mark.parametrize(
    ("layer", "parameters", "multiply_adds"),
    [
        (nn.Conv2d(3, 8, 3, padding=1, bias=False), 3 * 8 * 9, 3 * 8 * 9 * 81),
        (nn.Conv2d(3, 8, 3, padding=1, stride=2, bias=False), 3 * 8 * 9, 3 * 8 * 9 * 25),
        (nn.Conv2d(3, 6, (1, 3), groups=3, bias=False), 6 * 3, 6 * 3 * 9 * 7),
        (nn.Conv2d(3, 8, 1, bias=True), 3 * 8 + 8, (3 * 8 + 8) * 81),
        (nn.Sequential(nn.Flatten(), nn.Linear(243, 5)), 243 * 5 + 5, 243 * 5 + 5),
        (nn.Sequential(nn.Flatten(), nn.Linear(243, 5, bias=False)), 243 * 5, 243 * 5),
        (nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.AvgPool2d(2)), 6, 0),
    ],
)
def test_a_layer_costs_what_its_formula_says(layer: nn.Module, parameters: int, multiply_adds: int) -> None:
    assert cost_of(layer, SHAPE) == Cost(parameters, multiply_adds)


def test_a_layer_that_runs_twice_has_its_weights_once() -> None:
    layer = nn.Conv2d(3, 3, 1, bias=False)
    assert cost_of(nn.Sequential(layer, nn.ReLU(), layer), SHAPE) == Cost(9, 2 * 9 * 81)


def test_costs_add_part_by_part() -> None:
    assert Cost(1, 20) + Cost(300, 4000) == Cost(301, 4020)


# --- modules of an unknown kind


class Scaled(nn.Module):
    """Has a weight that no rule counts."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv2d(3, 3, 1)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.inner(x)


class Doubled(nn.Module):
    """A leaf without weights, whose multiply-adds cannot be known."""

    def forward(self, x: Tensor) -> Tensor:
        return x + x


class Counted(Doubled):
    """Says itself what it costs."""

    def count_multiply_adds(self, inputs: tuple[Tensor, ...], output: Tensor) -> int:
        return output.numel()


@pytest.mark.parametrize(
    ("layer", "kind"),
    [
        (Scaled(), "Scaled"),
        (nn.Sequential(nn.Conv2d(3, 3, 1), Doubled()), "Doubled"),
        (nn.ConvTranspose2d(3, 3, 1), "ConvTranspose2d"),
        (nn.Sequential(nn.Conv2d(3, 3, 1), nn.MultiheadAttention(9, 3)), "MultiheadAttention"),
    ],
)
def test_a_module_of_an_unknown_kind_is_refused_in_one_line(layer: nn.Module, kind: str) -> None:
    with pytest.raises(SettingError, match=rf"\({kind}\) must be known.*count_multiply_adds") as refused:
        cost_of(layer, SHAPE)
    assert "\n" not in str(refused.value)


def test_a_module_that_counts_itself_is_counted() -> None:
    assert cost_of(nn.Sequential(nn.Conv2d(3, 3, 1, bias=False), Counted()), SHAPE) == Cost(9, 12 * 81)


def test_norms_pools_activations_and_dropout_are_free() -> None:
    free = [nn.GroupNorm(1, 3), nn.PReLU(), nn.MaxPool2d(2), nn.Dropout(0.5), nn.ZeroPad2d(1), nn.Identity(), nn.SiLU()]
    assert cost_of(nn.Sequential(nn.Conv2d(3, 3, 1, bias=False), *free), SHAPE).multiply_adds == 9 * 81


# --- the published table


@pytest.mark.parametrize(
    ("dataset", "classes", "size"), [("cifar10", 10, 32), ("cifar100", 100, 32), ("imagenet16", 120, 16)]
)
def test_every_published_cost_is_met_exactly(nb201_dir: Path, dataset: str, classes: int, size: int) -> None:
    with np.load(nb201_dir / "nasbench201_compact.npz") as published:
        operations, parameters = published["ops"], published[f"{dataset}_params"]
        multiply_adds = np.rint(published[f"{dataset}_flops_M"] * 1e6).astype(np.int64)
    space = Nb201()
    table = CostTable(space, classes=classes, image_shape=(3, size, size), channels=16)
    names = [decision.name for decision in space.decisions]
    costs = [
        table.cost(dict(zip(names, (OPERATIONS[position] for position in row), strict=True)))
        for row in operations.tolist()
    ]
    assert len(costs) == 15_625
    assert np.array_equal([cost.parameters for cost in costs], parameters)
    assert np.array_equal([cost.multiply_adds for cost in costs], multiply_adds)


# --- a table against built networks


@pytest.mark.parametrize("name", [name for name, entry in SPACES.items() if entry.load() in (Darts, Nb201)])
def test_the_table_knows_the_cost_of_every_built_network(name: str) -> None:
    space = space_named(name)
    table = CostTable(space, classes=7, image_shape=SHAPE, channels=4)
    rng = random.Random(11)
    architectures = {space.sample(rng) for _ in range(10)}
    costs = set()
    for architecture in architectures:
        network = build_network(space, Only(architecture), classes=7, colours=3, channels=4)
        built = cost_of(network, SHAPE)
        assert built.parameters == sum(parameter.numel() for parameter in network.parameters())
        assert table.cost(architecture) == built
        costs.add(built)
    assert len(costs) > 3  # they are not all alike


def test_none_and_what_has_no_weights_cost_nothing() -> None:
    table = CostTable(MINI, classes=3, image_shape=SHAPE, channels=4)
    nothing, skips, pools = (
        table.cost(Architecture(dict.fromkeys(["0->1", "0->2", "1->2"], option)))
        for option in (NONE, "skip_connect", "avg_pool_3x3")
    )
    assert nothing == skips == pools
    assert nothing.parameters > 0


def test_settings_of_the_network_reach_the_table() -> None:
    space = Darts(cells=3, nodes=1, operations=("skip_connect", "sep_conv_3x3"))
    architecture = space.sample(random.Random(0))
    for settings in ({"channels": 4}, {"channels": 8}, {"channels": 4, "stem_multiplier": 1}):
        network = build_network(space, Only(architecture), classes=3, colours=3, **settings)
        table = CostTable(space, classes=3, image_shape=SHAPE, **settings)
        assert table.cost(architecture) == cost_of(network, SHAPE)


def test_a_supernet_costs_what_its_gates_run_but_holds_all_its_weights() -> None:
    supernet = build_network(MINI, EveryOption(), classes=3, colours=3, channels=4)
    closed = cost_of(supernet, SHAPE, {decision.name: Gate() for decision in MINI.decisions})
    first = {decision.name: Gate() for decision in MINI.decisions} | {"0->1": Gate(index=3)}
    opened = cost_of(supernet, SHAPE, first)
    assert opened.parameters == closed.parameters == sum(parameter.numel() for parameter in supernet.parameters())
    assert opened.multiply_adds - closed.multiply_adds == 9 * (16 * 81 + 64 * 25 + 256 * 9)


# --- counting leaves no trace


def test_counting_changes_nothing_in_the_network() -> None:
    network = build_network(MINI, Only(MINI.sample(random.Random(2))), classes=3, colours=3, channels=4)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    cost_of(network, SHAPE)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not any(module._forward_hooks for module in network.modules())


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        self.layer(x)
        raise RuntimeError("out of order")


def test_counters_are_removed_even_from_a_network_that_fails() -> None:
    network = Broken()
    with pytest.raises(RuntimeError, match="out of order"):
        cost_of(network, SHAPE)
    assert not any(module._forward_hooks for module in network.modules())


def test_a_network_of_any_precision_can_be_counted() -> None:
    architecture = MINI.sample(random.Random(2))
    costs = {
        cost_of(build_network(MINI, Only(architecture), classes=3, colours=3, channels=4).to(precision), SHAPE)
        for precision in (torch.float32, torch.float64, torch.bfloat16)
    }
    assert len(costs) == 1


def test_one_pixel_is_enough() -> None:
    network = build_network(MINI, Only(MINI.sample(random.Random(2))), classes=3, colours=3, channels=4)
    assert cost_of(network, (3, 1, 1)).multiply_adds > 0
