"""Pools: what they take from the border, and that their normalisation has nothing to learn."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from archloom.operations.place import Make, Place
from archloom.operations.pooling import average_pool, max_pool, normalized_average_pool, normalized_max_pool


def scaled_where_allowed(channels: int, *, scaled: bool = True) -> nn.Module:
    return nn.BatchNorm2d(channels, affine=scaled)


def place(stride: int) -> Place:
    return Place(2, 2, stride, scaled_where_allowed)


def images(size: int) -> Tensor:
    return torch.randn(3, 2, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(size))


def windows(x: Tensor, stride: int) -> dict[tuple[int, int], Tensor]:
    """The pixels, at most 3x3, around every position that a pool of this stride looks at."""
    centres = range(0, x.shape[-1], stride)
    return {
        (row // stride, column // stride): x[:, :, max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2]
        for row in centres
        for column in centres
    }


@pytest.mark.parametrize("size", [6, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_an_average_leaves_the_border_out(stride: int, size: int) -> None:
    x = images(size)
    pooled = average_pool(place(stride))(x)
    parts = windows(x, stride)
    assert pooled.shape == (3, 2, -(-size // stride), -(-size // stride))
    for (row, column), part in parts.items():
        torch.testing.assert_close(pooled[:, :, row, column], part.mean(dim=(2, 3)))


@pytest.mark.parametrize("size", [6, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_maximum_never_takes_the_border(stride: int, size: int) -> None:
    x = images(size) - 10  # all negative: a border of zeros would win
    pooled = max_pool(place(stride))(x)
    assert pooled.shape == (3, 2, -(-size // stride), -(-size // stride))
    for (row, column), part in windows(x, stride).items():
        assert torch.equal(pooled[:, :, row, column], part.amax(dim=(2, 3)))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("make", "bare"), [(normalized_average_pool, average_pool), (normalized_max_pool, max_pool)])
def test_a_normalized_pool_is_the_pool_with_its_channels_standardised(make: Make, bare: Make, stride: int) -> None:
    x = 5 * images(6) + 2
    pooled = bare(place(stride))(x)
    mean = pooled.mean(dim=(0, 2, 3), keepdim=True)
    variance = pooled.var(dim=(0, 2, 3), keepdim=True, correction=0)
    result = make(place(stride)).double()(x)
    torch.testing.assert_close(result, (pooled - mean) / (variance + 1e-5).sqrt())


@pytest.mark.parametrize("make", [average_pool, max_pool, normalized_average_pool, normalized_max_pool])
def test_a_pool_has_nothing_to_learn(make: Make) -> None:
    assert list(make(place(1)).parameters()) == []
