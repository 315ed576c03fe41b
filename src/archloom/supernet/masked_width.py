"""Widths as choices: one kernel of the widest shape, of which narrower layers use the first channels (TuNAS).

There are two ways to run a layer that is narrower than its kernel. Masking computes all channels and puts those too
many to zero: after the convolution, and after normalisation and activation too, which might make something of zeros. It
is how the idea is written down. Slicing computes with the part of the kernel that is needed, and nothing else; it is
what runs. Both give the same values and gradients. Which of them a tensor comes from, its channels tell: with
masks it has all of them.
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
    """How much of a layer is there: its first channels and, where a gate has weights, what these leave of each."""

    channels: int
    scale: Tensor | None = None

    def limit(self, x: Tensor) -> Tensor:
        """x with zeros in the channels that are too many; where it was sliced, there are none."""
        if x.shape[1] == self.channels:
            return x
        mask = torch.arange(x.shape[1], device=x.device) < self.channels
        return x * mask.to(x.dtype).view(-1, *[1] * (x.dim() - 2))

    def weigh(self, x: Tensor) -> Tensor:
        """x times the weights of the gate, by which they get their gradient."""
        if self.scale is None:
            return x
        scale = self.scale.to(x.dtype)
        if scale.dim() > 0 and len(scale) < x.shape[1]:  # masks are as wide as the kernel, other widths need not be
            scale = F.pad(scale, (0, x.shape[1] - len(scale)))
        return x * (scale if scale.dim() == 0 else scale.view(-1, *[1] * (x.dim() - 2)))


@dataclass(frozen=True)
class Width:
    """A decision on a width: its options as numbers. A network of one architecture has one of them."""

    name: str
    sizes: tuple[float, ...]

    @classmethod
    def of(cls, name: str, options: Sequence[str]) -> Width:
        """The decision of this name, of which these options are built."""
        return cls(name, tuple(float(option) for option in options))

    @property
    def largest(self) -> int:
        return int(max(self.sizes))

    def extent(self, gates: Gates | None, sizes: Sequence[int] | None = None) -> Extent:
        """What the gate leaves of the layer; `sizes` are the widths that the options stand for, if not themselves.

        A mixture is as wide as its widest option, and a channel has the weights of all options that it is in.
        """
        sizes = [int(size) for size in self.sizes] if sizes is None else sizes
        if len(sizes) == 1:
            return Extent(sizes[0])
        gate = (gates or {})[self.name]
        if isinstance(gate.index, Tensor) or (gate.weights is not None and gate.weights.dim() > 1):
            raise SettingError(
                f"'{self.name}' is a width: all images of a batch must have the same, take one path for all"
            )
        if gate.index is not None:
            return Extent(sizes[gate.index], None if gate.weights is None else gate.weights[gate.index])
        if gate.weights is None:
            raise SettingError(f"'{self.name}' is a width: its gate cannot be closed")
        numbers = torch.arange(max(sizes), device=gate.weights.device)
        within = torch.stack([numbers < size for size in sizes]).to(gate.weights.dtype)
        return Extent(max(sizes), gate.weights @ within)


class SharedKernel(nn.Module):
    """A layer whose parameters are those of its widest form."""

    used: Mapping[str, tuple[int, ...]] | None = None  # how much of each the last graph hangs on; None: all of it

    def note(self, used: Mapping[str, tuple[int, ...]] | None) -> None:
        if torch.is_grad_enabled() and used != self.used:
            self.used = used


class SharedConv2d(nn.Conv2d, SharedKernel):
    """A convolution that can be narrower than its kernel; depthwise where `groups` are as many as its channels."""

    def __init__(self, *arguments: int, masked: bool = False, **settings: int | bool) -> None:
        super().__init__(*arguments, **settings)  # type: ignore[arg-type]
        self._masked = masked

    def forward(self, x: Tensor, extent: Extent | None = None) -> Tensor:
        depthwise = self.groups > 1
        extent = extent or Extent(x.shape[1] if depthwise else self.out_channels)
        used = (extent.channels, 1 if depthwise else x.shape[1])
        if self._masked or used == self.weight.shape[:2]:
            self.note(None)
            return extent.limit(super().forward(x))
        self.note({"weight": used, "bias": used[:1]})
        weight = self.weight[: used[0], : used[1]]
        bias = None if self.bias is None else self.bias[: used[0]]
        return F.conv2d(x, weight, bias, self.stride, self.padding, self.dilation, used[0] if depthwise else 1)


class SharedLinear(nn.Linear, SharedKernel):
    """A linear layer that reads as many features as there are."""

    def forward(self, x: Tensor) -> Tensor:
        features = x.shape[1]
        if features == self.in_features:
            self.note(None)
            return super().forward(x)
        self.note({"weight": (self.out_features, features)})
        return F.linear(x, self.weight[:, :features], self.bias)


def normalized(normalize: nn.Module, x: Tensor) -> Tensor:
    """The first channels' normalisation of one for all channels."""
    if not isinstance(normalize, nn.BatchNorm2d) or x.shape[1] == normalize.num_features:
        result: Tensor = normalize(x)
        return result
    if not normalize.affine and normalize.running_mean is None:
        return normalize(x)  # type: ignore[no-any-return]  # it holds nothing that has a width
    channels = x.shape[1]
    mean, variance, scale, shift = (
        None if part is None else part[:channels]
        for part in (normalize.running_mean, normalize.running_var, normalize.weight, normalize.bias)
    )
    own = normalize.training or mean is None
    return F.batch_norm(x, mean, variance, scale, shift, own, normalize.momentum or 0.0, normalize.eps)
