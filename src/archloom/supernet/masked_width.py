"""Widths as choices: one kernel of the widest shape, of which narrower layers use the first channels (TuNAS).

There are two ways to run a layer that is narrower than its kernel. Masking computes all channels and sets the excess
ones to zero: after the convolution, and again after normalisation and activation, which may not map zero to zero. The
paper describes it this way. Slicing computes with the needed part of the kernel only; this is what runs by default.
Both give the same values and gradients. The number of channels of a tensor shows which one was used: with masks it has
all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.core.errors import SettingError
from archloom.supernet.gate import Gates


@dataclass(frozen=True)
class Extent:
    """Hold the part of a layer that is used: its first channels and, where a gate has weights, a scale for each."""

    channels: int
    scale: Tensor | None = None

    def limit(self, x: Tensor) -> Tensor:
        """Set the excess channels to zero; a sliced tensor has none."""
        if x.shape[1] == self.channels:
            return x
        mask = torch.arange(x.shape[1], device=x.device) < self.channels
        return x * mask.to(x.dtype).view(-1, *[1] * (x.dim() - 2))

    def weigh(self, x: Tensor) -> Tensor:
        """Multiply by the weights of the gate, which get their gradient from this product."""
        if self.scale is None:
            return x
        scale = self.scale.to(x.dtype)
        if scale.dim() > 0 and len(scale) < x.shape[1]:  # a masked tensor is as wide as the kernel
            scale = F.pad(scale, (0, x.shape[1] - len(scale)))
        return x * (scale if scale.dim() == 0 else scale.view(-1, *[1] * (x.dim() - 2)))


@dataclass(frozen=True)
class Width:
    """Hold a decision on a width with its options as numbers. A network of one architecture has a single option."""

    name: str
    sizes: tuple[float, ...]

    @classmethod
    def from_options(cls, name: str, options: Sequence[str]) -> Width:
        """Return the decision of this name, with the options that are built."""
        return cls(name, tuple(float(option) for option in options))

    @property
    def largest(self) -> int:
        """Return the largest width, which the weights are built for."""
        return int(max(self.sizes))

    def extent(self, gates: Gates | None, sizes: Sequence[int] | None = None) -> Extent:
        """Return the part of the layer that the gate selects; `sizes` are the widths of the options, if not themselves.

        A mixture is as wide as its widest option. The weight of a channel is the sum over all options that include it.
        """
        sizes = [int(size) for size in self.sizes] if sizes is None else sizes
        if len(sizes) == 1:
            return Extent(sizes[0])
        gate = (gates or {})[self.name]
        if isinstance(gate.index, Tensor) or (gate.weights is not None and gate.weights.dim() > 1):
            raise SettingError(
                f"'{self.name}' is a width: all images of a batch must have the same; use one path for all"
            )
        if gate.index is not None:
            return Extent(sizes[gate.index], None if gate.weights is None else gate.weights[gate.index])
        if gate.weights is None:
            raise SettingError(f"'{self.name}' is a width: its gate cannot be closed")
        numbers = torch.arange(max(sizes), device=gate.weights.device)
        within = torch.stack([numbers < size for size in sizes]).to(gate.weights.dtype)
        return Extent(max(sizes), gate.weights @ within)


class SharedKernel(nn.Module):
    """A layer that holds the parameters of its widest form."""

    used_sizes: Mapping[str, tuple[int, ...]] | None = None  # of each parameter in the last graph; None: all of it

    def record_use(self, used: Mapping[str, tuple[int, ...]] | None) -> None:
        """Note which sizes this pass uses, so that other weights stay untouched."""
        if torch.is_grad_enabled() and used != self.used_sizes:
            self.used_sizes = used


class SharedConv2d(nn.Conv2d, SharedKernel):
    """A convolution that can be narrower than its kernel; depthwise where `groups` equals its channels."""

    def __init__(self, *arguments: int, masked: bool = False, **settings: int | bool) -> None:
        super().__init__(*arguments, **settings)  # type: ignore[arg-type]
        self._masked = masked

    def forward(self, x: Tensor, extent: Extent | None = None) -> Tensor:
        """Return the convolved image, with the channels of `extent`."""
        depthwise = self.groups > 1
        extent = extent or Extent(x.shape[1] if depthwise else self.out_channels)
        used = (extent.channels, 1 if depthwise else x.shape[1])
        if self._masked or used == self.weight.shape[:2]:
            self.record_use(None)
            return extent.limit(super().forward(x))
        self.record_use({"weight": used, "bias": used[:1]})
        weight = self.weight[: used[0], : used[1]]
        bias = None if self.bias is None else self.bias[: used[0]]
        return F.conv2d(x, weight, bias, self.stride, self.padding, self.dilation, used[0] if depthwise else 1)


class SharedLinear(nn.Linear, SharedKernel):
    """A linear layer that reads as many features as its input has."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs, computed from the features that there are."""
        features = x.shape[1]
        if features == self.in_features:
            self.record_use(None)
            return super().forward(x)
        self.record_use({"weight": (self.out_features, features)})
        return F.linear(x, self.weight[:, :features], self.bias)


def normalize_first_channels(normalize: nn.Module, x: Tensor) -> Tensor:
    """Normalise a tensor by the first channels of a normalisation."""
    if not isinstance(normalize, nn.BatchNorm2d) or x.shape[1] == normalize.num_features:
        result: Tensor = normalize(x)
        return result
    if not normalize.affine and normalize.running_mean is None:
        return normalize(x)  # type: ignore[no-any-return]  # it has no tensor with a width
    channels = x.shape[1]
    mean, variance, scale, shift = (
        None if part is None else part[:channels]
        for part in (normalize.running_mean, normalize.running_var, normalize.weight, normalize.bias)
    )
    own = normalize.training or mean is None
    return F.batch_norm(x, mean, variance, scale, shift, own, normalize.momentum or 0.0, normalize.eps)
