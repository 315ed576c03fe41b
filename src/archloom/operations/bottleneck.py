"""Inverted bottlenecks that share their weights between widths and kernels (Sandler et al., 2018; TuNAS).

One pair of 1x1 convolutions serves all options; only the depthwise kernels and squeeze-and-excite have weights of their
own. So every weight is trained by many paths, and a path costs only its own layers, however many options there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from archloom.spaces.mobile import ON, rounded
from archloom.supernet import Extent, Gates, LayerChoice, SharedConv2d, Width, normalize_first_channels

SQUEEZE = 0.25  # inner width of squeeze-and-excite, as a share of the width it scales

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "swish": F.silu,
    "hard_swish": F.hardswish,
    "linear": lambda x: x,
}

MakeLayerChoice = Callable[[str, Callable[[str], nn.Module]], LayerChoice]  # from the name of a part and its options


class SharedNorm(nn.Module):
    """Normalise and activate the channels in use behind a convolution."""

    def __init__(self, normalize: nn.Module, activation: str) -> None:
        super().__init__()
        self.normalize, self._activation = normalize, activation

    def forward(self, x: Tensor, extent: Extent) -> Tensor:
        """Return the first channels, normalised and activated."""
        x = extent.limit(normalize_first_channels(self.normalize, x))
        return extent.limit(ACTIVATIONS[self._activation](x))


class SqueezeExcite(nn.Module):
    """Scale every channel by what the means of all channels say (Hu et al., 2018; the hard gate of MobileNetV3)."""

    def __init__(self, channels: int, *, masked: bool) -> None:
        super().__init__()
        inner = rounded(channels * SQUEEZE)
        self.squeeze = SharedConv2d(channels, inner, 1, masked=masked)
        self.excite = SharedConv2d(inner, channels, 1, masked=masked)

    def forward(self, x: Tensor, extent: Extent) -> Tensor:
        """Return the image with every channel scaled."""
        means = x.mean((2, 3), keepdim=True)
        inner = F.relu(self.squeeze(means, Extent(rounded(extent.channels * SQUEEZE))))
        return x * F.hardsigmoid(self.excite(inner, extent))


class PassOn(nn.Module):
    """Return the input unchanged."""

    def forward(self, x: Tensor, *arguments: Any) -> Tensor:
        """Return the input."""
        return x

    def count_multiply_adds(self, inputs: object, output: Tensor) -> int:
        """Return 0: nothing is computed."""
        return 0


class InvertedBottleneck(nn.Module):
    """Widen by a 1x1 convolution, filter by a depthwise one, narrow by another 1x1."""

    def __init__(
        self,
        width_in: Width,
        width: Width,
        expansion: Width,
        *,
        layer_choice: MakeLayerChoice,
        normalize: Callable[[int], nn.Module],
        stride: int,
        activation: str,
        masked: bool,
    ) -> None:
        super().__init__()
        self._expansion = expansion
        inner = rounded(width_in.largest * max(expansion.sizes))
        self.expand = SharedConv2d(width_in.largest, inner, 1, bias=False, masked=masked)
        self.expand_norm = SharedNorm(normalize(inner), activation)
        self.kernel = layer_choice("kernel", lambda kernel: depthwise(inner, int(kernel), stride, masked=masked))
        self.kernel_norm = SharedNorm(normalize(inner), activation)
        self.squeeze = layer_choice("squeeze", lambda on: SqueezeExcite(inner, masked=masked) if on == ON else PassOn())
        self.project = SharedConv2d(inner, width.largest, 1, bias=False, masked=masked)
        self.project_norm = SharedNorm(normalize(width.largest), "linear")

    def forward(self, x: Tensor, gates: Gates | None, channels_in: int, extent: Extent) -> Tensor:
        """Return the narrowed image, with the channels of `extent`."""
        inner = self._expansion.extent(gates, [rounded(channels_in * times) for times in self._expansion.sizes])
        x = self.expand_norm(self.expand(x, inner), inner)
        looked = self.kernel(x, gates)
        x = self.squeeze(self.kernel_norm(looked, inner), gates, inner)
        # weighed last: a normalisation behind would take the weights out again
        x = self.project_norm(self.project(inner.weigh(x), extent), extent)
        return extent.weigh(x)

    def runs_several(self, gates: Gates | None) -> bool:
        """Return whether several options run in parallel here."""
        return self.kernel.runs_several(gates) or self.squeeze.runs_several(gates)


class SeparableConv(nn.Module):
    """A depthwise convolution and a 1x1 one: an inverted bottleneck that widens nothing."""

    def __init__(
        self,
        width_in: Width,
        width: Width,
        *,
        layer_choice: MakeLayerChoice,
        normalize: Callable[[int], nn.Module],
        masked: bool,
    ) -> None:
        super().__init__()
        inner = width_in.largest
        self.kernel = layer_choice("kernel", lambda kernel: depthwise(inner, int(kernel), 1, masked=masked))
        self.kernel_norm = SharedNorm(normalize(inner), "relu")
        self.project = SharedConv2d(inner, width.largest, 1, bias=False, masked=masked)
        self.project_norm = SharedNorm(normalize(width.largest), "linear")

    def forward(self, x: Tensor, gates: Gates | None, channels_in: int, extent: Extent) -> Tensor:
        """Return the convolved image, with the channels of `extent`."""
        x = self.kernel_norm(self.kernel(x, gates), Extent(channels_in))
        return extent.weigh(self.project_norm(self.project(x, extent), extent))

    def runs_several(self, gates: Gates | None) -> bool:
        """Return whether several kernels run in parallel here."""
        return self.kernel.runs_several(gates)


def depthwise(channels: int, kernel: int, stride: int, *, masked: bool) -> SharedConv2d:
    """Return a convolution with one filter per channel."""
    return SharedConv2d(channels, channels, kernel, stride, kernel // 2, groups=channels, bias=False, masked=masked)
