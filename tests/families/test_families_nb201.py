"""The network of NB201: its layout, and room for anybody's own operation."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from archloom.core.errors import SettingError
from archloom.families import build_network
from archloom.families.nb201 import Nb201Cell, Nb201Network, ResidualReduction
from archloom.objectives import CostTable, cost_of
from archloom.operations import NB201_OPERATIONS, Place
from archloom.spaces import Nb201
from archloom.supernet import EveryOption, Only, inherit, path_gates

SPACE = Nb201(cells_per_stage=2)
CELL = SPACE.parse("|nor_conv_3x3~0|+|skip_connect~0|nor_conv_1x1~1|+|none~0|avg_pool_3x3~1|skip_connect~2|")


def cell(nodes: int, text: str, channels: int = 4) -> Nb201Cell:
    space = Nb201(nodes=nodes)
    return Nb201Cell(space, channels, Only(space.parse(text), affine=False, running_statistics=False)).double()


def test_stages_of_cells_are_joined_by_blocks_that_halve_and_widen() -> None:
    network = build_network(SPACE, EveryOption(), classes=7, colours=2, channels=4)
    assert isinstance(network, Nb201Network)
    kinds = [type(block) for block in network.blocks]
    assert kinds == [Nb201Cell] * 2 + ([ResidualReduction] + [Nb201Cell] * 2) * 2
    shapes = []
    for block in network.blocks:
        block.register_forward_hook(lambda module, inputs, output: shapes.append(tuple(output.shape)))
    logits = network(torch.zeros(2, 2, 9, 9), path_gates(SPACE, CELL))
    assert shapes == [(2, 4, 9, 9)] * 2 + [(2, 8, 5, 5)] * 3 + [(2, 16, 3, 3)] * 3
    assert logits.shape == (2, 7)


def test_a_cell_adds_up_what_its_text_says() -> None:
    x = torch.randn(2, 4, 6, 6, dtype=torch.float64)
    pool = nn.AvgPool2d(3, 1, 1, count_include_pad=False)
    module = cell(3, "|avg_pool_3x3~0|+|skip_connect~0|avg_pool_3x3~1|")
    torch.testing.assert_close(module(x, None), x + pool(pool(x)))
    module = cell(3, "|skip_connect~0|+|none~0|avg_pool_3x3~1|")
    torch.testing.assert_close(module(x, None), pool(x))
    module = cell(4, "|skip_connect~0|+|skip_connect~0|skip_connect~1|+|skip_connect~0|skip_connect~1|skip_connect~2|")
    torch.testing.assert_close(module(x, None), 4 * x)  # four ways from the first state to the last


@pytest.mark.parametrize("size", [6, 5])
def test_a_reduction_adds_two_convolutions_and_a_pooled_shortcut(size: int) -> None:
    block = ResidualReduction(4, 8, EveryOption()).double()
    x = torch.randn(3, 4, size, size, dtype=torch.float64)
    first, second, shortcut = (parameter.detach() for parameter in block.parameters())

    def norm(value: torch.Tensor) -> torch.Tensor:
        return nn.functional.batch_norm(value, None, None, training=True)

    main = norm(nn.functional.conv2d(x.relu(), first, stride=2, padding=1))
    main = norm(nn.functional.conv2d(main.relu(), second, padding=1))
    side = -(-size // 2)
    pooled = torch.stack(
        [
            x[:, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].mean((2, 3))
            for row in range(side)
            for column in range(side)
        ],
        dim=-1,
    ).view(3, 4, side, side)
    torch.testing.assert_close(block(x, None), main + nn.functional.conv2d(pooled, shortcut))


def test_the_head_normalizes_before_it_averages() -> None:
    network = build_network(SPACE, EveryOption(), classes=7, colours=2, channels=4)
    kinds = [nn.BatchNorm2d, nn.ReLU, nn.AdaptiveAvgPool2d, nn.Flatten, nn.Linear]
    assert all(isinstance(module, kind) for module, kind in zip(network.head, kinds, strict=True))


def test_sixteen_channels_are_usual() -> None:
    network = build_network(SPACE, Only(CELL), classes=10, colours=3)
    assert network.stem[0].weight.shape == (16, 3, 3, 3)


@pytest.mark.parametrize("channels", [0, -4])
def test_a_network_without_channels_is_refused(channels: int) -> None:
    with pytest.raises(SettingError, match=f"^network.channels must lie in 1..65536, got {channels}$"):
        build_network(SPACE, EveryOption(), classes=10, colours=3, channels=channels)


# --- operations of one's own


def my_op(place: Place) -> nn.Module:
    return nn.Conv2d(place.channels_in, place.channels_out, 5, place.stride, 2, bias=False)


def test_an_operation_added_to_the_table_runs_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NB201_OPERATIONS, "my_op", my_op)
    space = Nb201(nodes=3, cells_per_stage=1, operations=("none", "skip_connect", "my_op"))
    with_it = space.parse("|my_op~0|+|skip_connect~0|my_op~1|")
    without = space.parse("|skip_connect~0|+|skip_connect~0|skip_connect~1|")
    supernet = build_network(space, EveryOption(), classes=3, colours=3, channels=4)
    networks = [build_network(space, Only(each), classes=3, colours=3, channels=4) for each in (with_it, without)]
    x = torch.randn(2, 3, 8, 8)
    inherit(networks[0], supernet)
    torch.testing.assert_close(networks[0](x), supernet(x, path_gates(space, with_it)))
    shape = (3, 8, 8)
    table = CostTable(space, classes=3, image_shape=shape, channels=4)
    costs = [cost_of(network, shape) for network in networks]
    assert costs == [table.cost(with_it), table.cost(without)]
    weights = [25 * width**2 for width in (4, 8, 16)]
    assert costs[0].parameters - costs[1].parameters == 2 * sum(weights)
    pixels = (64, 16, 4)
    more = 2 * sum(weight * area for weight, area in zip(weights, pixels, strict=True))
    assert costs[0].multiply_adds - costs[1].multiply_adds == more


def test_an_operation_that_is_in_no_table_is_refused_with_the_nearest_name() -> None:
    space = replace(SPACE, operations=("none", "nor_conv_3x4"))
    with pytest.raises(SettingError, match=r"^unknown operation 'nor_conv_3x4'; did you mean 'nor_conv_3x3'\?$"):
        build_network(space, EveryOption(), classes=3, colours=3)
