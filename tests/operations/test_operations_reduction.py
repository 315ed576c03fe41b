"""The fixed reduction cell: which part of its output comes from where."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.objectives import CostTable
from archloom.operations import FixedReduction
from archloom.spaces import Darts

CHANNELS, GROUPS = 16, 8


def unnormalized(channels: int, *, scaled: bool = True) -> nn.Module:
    return nn.Identity()


def inputs(size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(size)
    first, second = torch.randn(2, 3, CHANNELS, size, size, dtype=torch.float64, generator=generator)
    return first, second


@pytest.mark.parametrize("size", [12, 9])
def test_two_convolved_inputs_come_first_then_the_two_pooled_ones(size: int) -> None:
    cell = FixedReduction(CHANNELS, unnormalized).double()
    first, second = inputs(size)
    wide_first, tall_first, point_first, wide_second, tall_second, point_second = (
        p.detach() for p in cell.parameters()
    )
    assert wide_first.shape == (CHANNELS, CHANNELS // GROUPS, 1, 3)
    assert tall_first.shape == (CHANNELS, CHANNELS // GROUPS, 3, 1)

    def strips(x: Tensor, wide: Tensor, tall: Tensor, point: Tensor) -> Tensor:
        halved = F.conv2d(x.clamp(min=0), wide, stride=(1, 2), padding=(0, 1), groups=GROUPS)
        quartered = F.conv2d(halved, tall, stride=(2, 1), padding=(1, 0), groups=GROUPS)
        return F.conv2d(quartered.clamp(min=0), point)

    expected = [
        strips(first, wide_first, tall_first, point_first),
        strips(second, wide_second, tall_second, point_second),
        F.max_pool2d(first, 3, 2, 1),
        F.max_pool2d(second, 3, 2, 1),
    ]
    result = cell(first, second)
    side = -(-size // 2)
    assert result.shape == (3, 4 * CHANNELS, side, side)
    torch.testing.assert_close(result, torch.cat(expected, dim=1))


def test_widths_that_eight_does_not_divide_take_fewer_groups() -> None:
    cell = FixedReduction(12, unnormalized)
    assert [parameter.shape[1] for parameter in cell.parameters()][:3] == [3, 3, 12]


def test_the_published_frc_network_has_the_parameters_the_paper_prints() -> None:
    space = Darts(cells_per_block=6, reduction="fixed")
    cell = (
        "Genotype(normal=[('skip_connect', 0), ('skip_connect', 1), ('skip_connect', 0), ('sep_conv_3x3', 2), "
        "('skip_connect', 0), ('sep_conv_3x3', 2), ('skip_connect', 0), ('sep_conv_3x3', 2)])"
    )
    table = CostTable(space, classes=10, image_shape=(3, 32, 32), channels=36)
    assert abs(table.cost(space.parse(cell)).parameters - 2.5e6) < 0.06e6


def test_all_four_parts_are_normalized() -> None:
    cell = FixedReduction(CHANNELS, lambda channels, scaled=True: nn.BatchNorm2d(channels, affine=scaled)).double()
    result = cell(*inputs(12))
    flat = result.transpose(0, 1).flatten(1)
    torch.testing.assert_close(flat.mean(dim=1), torch.zeros_like(flat[:, 0]))
    torch.testing.assert_close(flat.var(dim=1, correction=0), torch.ones_like(flat[:, 0]), atol=1e-3, rtol=0)
    assert sum(isinstance(module, nn.BatchNorm2d) for module in cell.modules()) == 6
