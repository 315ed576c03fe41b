"""Convolutions against the same formula written out with functional calls."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.operations.convolutions import DilatedConv, FactorizedReduce, ReluConvNorm, SeparableConv
from archloom.operations.place import Place


class Marked(nn.Module):
    """Stands for a normalisation: visible in the result, and easy to write by hand."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1] == self.channels
        return 3 * x + 1


def marked(channels: int, *, scaled: bool = True) -> nn.Module:
    assert scaled  # a convolution's normalisation may always have a scale
    return Marked(channels)


def images(size: int, *, channels: int = 4) -> Tensor:
    return torch.randn(2, channels, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(size))


def weights(module: nn.Module) -> list[Tensor]:
    return [parameter.detach() for parameter in module.parameters()]


@pytest.mark.parametrize("size", [12, 9])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [1, 3])
def test_relu_conv_norm_is_relu_then_convolution_then_norm(kernel: int, stride: int, size: int) -> None:
    module = ReluConvNorm(Place(4, 6, stride, marked), kernel=kernel).double()
    x = images(size)
    (weight,) = weights(module)
    expected = 3 * F.conv2d(x.clamp(min=0), weight, stride=stride, padding=(kernel - 1) // 2) + 1
    torch.testing.assert_close(module(x), expected)
    assert expected.shape == (2, 6, -(-size // stride), -(-size // stride))


@pytest.mark.parametrize("size", [12, 9])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [3, 5])
def test_dilated_conv_looks_at_every_second_pixel_channel_by_channel_then_mixes(
    kernel: int, stride: int, size: int
) -> None:
    module = DilatedConv(Place(4, 6, stride, marked), kernel=kernel).double()
    x = images(size)
    depthwise, pointwise = weights(module)
    assert depthwise.shape == (4, 1, kernel, kernel)
    assert pointwise.shape == (6, 4, 1, 1)
    inner = F.conv2d(x.clamp(min=0), depthwise, stride=stride, padding=kernel - 1, dilation=2, groups=4)
    torch.testing.assert_close(module(x), 3 * F.conv2d(inner, pointwise) + 1)
    assert module(x).shape[2:] == (-(-size // stride),) * 2


@pytest.mark.parametrize("size", [12, 9])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [3, 5])
def test_separable_conv_is_done_twice_and_strides_only_first(kernel: int, stride: int, size: int) -> None:
    module = SeparableConv(Place(4, 6, stride, marked), kernel=kernel).double()
    x = images(size)
    first_depth, first_point, second_depth, second_point = weights(module)
    half = kernel // 2
    inner = F.conv2d(x.clamp(min=0), first_depth, stride=stride, padding=half, groups=4)
    middle = 3 * F.conv2d(inner, first_point) + 1
    inner = F.conv2d(middle.clamp(min=0), second_depth, padding=half, groups=4)
    torch.testing.assert_close(module(x), 3 * F.conv2d(inner, second_point) + 1)
    assert first_point.shape[0] == 4  # the width changes last
    assert second_point.shape[0] == 6


@pytest.mark.parametrize("size", [12, 9])
@pytest.mark.parametrize("channels_out", [6, 5])
def test_factorized_reduce_sees_even_pixels_in_one_half_and_odd_ones_in_the_other(channels_out: int, size: int) -> None:
    module = FactorizedReduce(Place(4, channels_out, 2, marked)).double()
    x = images(size)
    even, odd = weights(module)
    assert len(even) == channels_out // 2
    assert len(odd) == channels_out - channels_out // 2
    result = module(x)
    side = -(-size // 2)
    assert result.shape == (2, channels_out, side, side)
    positive = x.clamp(min=0)
    for row in range(side):
        for column in range(side):
            at = positive[:, :, 2 * row, 2 * column] @ even[:, :, 0, 0].T
            torch.testing.assert_close(result[:, : len(even), row, column], 3 * at + 1)
            inside = 2 * row + 1 < size and 2 * column + 1 < size  # beyond the border of an odd size there is nothing
            pixel = positive[:, :, 2 * row + 1, 2 * column + 1] if inside else torch.zeros_like(positive[:, :, 0, 0])
            torch.testing.assert_close(result[:, len(even) :, row, column], 3 * pixel @ odd[:, :, 0, 0].T + 1)
