"""Convolutions as the cell spaces use them: activation first, no bias before a normalisation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.fast.network_plan import FeatureMap, NetworkPlanner, SumTerm
from archloom.operations.place import Place


class ReluConvNorm(nn.Sequential):
    """ReLU, convolution, normalisation.

    Args:
        place: channels, stride and normalisation.
        kernel: side of the kernel.

    Examples:
        >>> import archloom, torch
        >>> place = archloom.Place(8, 16, 1, archloom.EveryOption().normalize)
        >>> archloom.ReluConvNorm(place, kernel=3)(torch.rand(2, 8, 4, 4)).shape
        torch.Size([2, 16, 4, 4])
    """

    def __init__(self, place: Place, *, kernel: int) -> None:
        super().__init__(
            nn.ReLU(),
            nn.Conv2d(place.channels_in, place.channels_out, kernel, place.stride, kernel // 2, bias=False),
            place.normalize(place.channels_out),
        )


def _depthwise(channels: int, kernel: int, stride: int, dilation: int) -> nn.Conv2d:
    padding = dilation * (kernel // 2)
    return nn.Conv2d(channels, channels, kernel, stride, padding, dilation, groups=channels, bias=False)


class DilatedConv(nn.Sequential):
    """ReLU, depthwise convolution with dilation 2, pointwise convolution, normalisation."""

    def __init__(self, place: Place, *, kernel: int, dilation: int = 2) -> None:
        super().__init__(
            nn.ReLU(),
            _depthwise(place.channels_in, kernel, place.stride, dilation),
            nn.Conv2d(place.channels_in, place.channels_out, 1, bias=False),
            place.normalize(place.channels_out),
        )


class SeparableConv(nn.Sequential):
    """A depthwise-separable convolution applied twice; only the first has the stride."""

    def __init__(self, place: Place, *, kernel: int) -> None:
        second = Place(place.channels_in, place.channels_out, 1, place.normalize)
        first = Place(place.channels_in, place.channels_in, place.stride, place.normalize)
        super().__init__(
            DilatedConv(first, kernel=kernel, dilation=1),
            DilatedConv(second, kernel=kernel, dilation=1),
        )


class FactorizedReduce(nn.Module):
    """Halve the resolution with two 1x1 convolutions, one of them looking between the pixels of the other."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        half = place.channels_out // 2
        self.even = nn.Conv2d(place.channels_in, half, 1, stride=2, bias=False)
        self.odd = nn.Conv2d(place.channels_in, place.channels_out - half, 1, stride=2, bias=False)
        self.normalize = place.normalize(place.channels_out)

    def forward(self, x: Tensor) -> Tensor:
        """Return the halved image: one half of the channels from even pixels, the other from odd ones."""
        x = F.relu(x)
        shifted = F.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]  # the padding lets odd sizes give equal halves
        result: Tensor = self.normalize(torch.cat([self.even(x), self.odd(shifted)], dim=1))
        return result

    def describe(self, planner: NetworkPlanner, source: FeatureMap) -> SumTerm:
        """Write down the reduction for the compiled executor."""
        return planner.normalize(planner.halve_convolved(source, self.even, self.odd), self.normalize)
