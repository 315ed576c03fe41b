"""The reduction cell that GDAS fixes by hand (its Fig. 3), so that only the normal cell is searched.

The figure leaves open how the convolutions are grouped; eight groups and a 1x1 convolution behind them, as in the
public code, give the 2.5 million parameters that the paper prints.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from archloom.operations.place import Normalize, Place
from archloom.operations.pooling import max_pool

GROUPS = 8


class FixedReduction(nn.Module):
    """Per input a 1x3 and a 3x1 convolution that halve one axis each, beside a max pool; all four are concatenated."""

    def __init__(self, channels: int, normalize: Normalize) -> None:
        super().__init__()
        pooled = Place(channels, channels, 2, normalize)
        self.convolutions = nn.ModuleList(_strip_convolutions(channels, normalize) for _ in range(2))
        self.pools = nn.ModuleList(nn.Sequential(max_pool(pooled), normalize(channels)) for _ in range(2))
        self.drop_path: nn.Module | None = None  # put on each of the four, where a network is trained with it

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        inputs = (first, second)
        convolved = [module(x) for module, x in zip(self.convolutions, inputs, strict=True)]
        pooled = [module(x) for module, x in zip(self.pools, inputs, strict=True)]
        parts = [part if self.drop_path is None else self.drop_path(part) for part in convolved + pooled]
        return torch.cat(parts, dim=1)


def _strip_convolutions(channels: int, normalize: Normalize) -> nn.Sequential:
    groups = math.gcd(GROUPS, channels)
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(channels, channels, (1, 3), (1, 2), (0, 1), groups=groups, bias=False),
        nn.Conv2d(channels, channels, (3, 1), (2, 1), (1, 0), groups=groups, bias=False),
        normalize(channels),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 1, bias=False),
        normalize(channels),
    )
