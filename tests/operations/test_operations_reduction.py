"""The fixed reduction cell: which part of its output comes from where."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.operations import FixedReduction

CHANNELS = 4


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
    wide_first, tall_first, wide_second, tall_second = (parameter.detach() for parameter in cell.parameters())
    assert wide_first.shape == (CHANNELS, CHANNELS, 1, 3)
    assert tall_first.shape == (CHANNELS, CHANNELS, 3, 1)

    def strips(x: Tensor, wide: Tensor, tall: Tensor) -> Tensor:
        halved = F.conv2d(x.clamp(min=0), wide, stride=(1, 2), padding=(0, 1))
        return F.conv2d(halved, tall, stride=(2, 1), padding=(1, 0))

    expected = [
        strips(first, wide_first, tall_first),
        strips(second, wide_second, tall_second),
        F.max_pool2d(first, 3, 2, 1),
        F.max_pool2d(second, 3, 2, 1),
    ]
    result = cell(first, second)
    side = -(-size // 2)
    assert result.shape == (3, 4 * CHANNELS, side, side)
    torch.testing.assert_close(result, torch.cat(expected, dim=1))


def test_all_four_parts_are_normalized() -> None:
    cell = FixedReduction(CHANNELS, lambda channels, scaled=True: nn.BatchNorm2d(channels, affine=scaled)).double()
    result = cell(*inputs(12))
    flat = result.transpose(0, 1).flatten(1)
    torch.testing.assert_close(flat.mean(dim=1), torch.zeros_like(flat[:, 0]))
    torch.testing.assert_close(flat.var(dim=1, correction=0), torch.ones_like(flat[:, 0]), atol=1e-3, rtol=0)
    assert sum(isinstance(module, nn.BatchNorm2d) for module in cell.modules()) == 4
