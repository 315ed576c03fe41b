"""Recognise what a candidate operation consists of, for a cell to compute equal parts together.

A candidate with other parts than those known here still runs, by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import nn

from archloom.fast import Geometry
from archloom.fast.kernel_arguments import EPSILON


@dataclass(frozen=True)
class Skip:
    """Return the image unchanged."""


@dataclass(frozen=True)
class Pool:
    """Pool 3x3 pixels, with or without normalisation."""

    kind: Literal["average", "max"]
    stride: int
    normalized: bool


@dataclass(frozen=True, eq=False)
class Dense:
    """Rectify, convolve, normalise."""

    convolution: nn.Conv2d


@dataclass(frozen=True, eq=False)
class Separable:
    """Rectify, convolve depthwise, convolve pointwise, normalise; once or twice."""

    depthwise: tuple[nn.Conv2d, ...]
    pointwise: tuple[nn.Conv2d, ...]

    @property
    def stride(self) -> int:
        """Return the stride of the first stage."""
        return int(self.depthwise[0].stride[0])

    def geometry(self, stage: int) -> Geometry:
        """Return stride and dilation of the depthwise convolution of a stage."""
        convolution = self.depthwise[stage]
        return Geometry(int(convolution.stride[0]), int(convolution.dilation[0]))


@dataclass(frozen=True, eq=False)
class Opaque:
    """Anything else."""

    module: nn.Module


Branch = Skip | Pool | Dense | Separable | Opaque


def branch_of(module: nn.Module) -> Branch:
    """Return the kind of a candidate and its parts."""
    parts = list(iterate_parts(module))
    return _match_skip(parts) or match_pool(parts) or _match_dense(parts) or _match_separable(parts) or Opaque(module)


def iterate_parts(module: nn.Module) -> Iterator[nn.Module]:
    """Iterate over the modules that run one after the other."""
    if type(module).forward is nn.Sequential.forward:  # includes subclasses that only add their parts
        for part in module.children():
            yield from iterate_parts(part)
    elif not isinstance(module, nn.Identity):
        yield module


def _match_skip(parts: list[nn.Module]) -> Skip | None:
    return None if parts else Skip()


def match_pool(parts: list[nn.Module]) -> Pool | None:
    """Return the pool that these modules are, None if they are something else."""
    pool, *rest = parts
    if not isinstance(pool, nn.AvgPool2d | nn.MaxPool2d) or len(rest) > 1 or not all(map(_is_plain_norm, rest)):
        return None
    if (pool.kernel_size, pool.padding, pool.ceil_mode) != (3, 1, False) or pool.stride not in (1, 2):
        return None
    if isinstance(pool, nn.AvgPool2d):
        if pool.count_include_pad or pool.divisor_override is not None:
            return None
        return Pool("average", pool.stride, bool(rest))
    return Pool("max", pool.stride, bool(rest)) if pool.dilation == 1 and not pool.return_indices else None


def _match_dense(parts: list[nn.Module]) -> Dense | None:
    if len(parts) != 3 or not (_is_relu(parts[0]) and _is_plain_norm(parts[2])):
        return None
    convolution = parts[1]
    if not isinstance(convolution, nn.Conv2d) or convolution.groups != 1 or not _is_zero_padded(convolution):
        return None
    return Dense(convolution)


def _match_separable(parts: list[nn.Module]) -> Separable | None:
    stages = [parts[start : start + 4] for start in range(0, len(parts), 4)]
    if len(stages) not in (1, 2) or not all(_is_separable_stage(stage) for stage in stages):
        return None
    depthwise, pointwise = zip(*[(stage[1], stage[2]) for stage in stages], strict=True)
    if any(convolution.stride != (1, 1) for convolution in depthwise[1:]):
        return None
    return Separable(depthwise, pointwise)


def _is_separable_stage(parts: list[nn.Module]) -> bool:
    if len(parts) != 4 or not (_is_relu(parts[0]) and _is_plain_norm(parts[3])):
        return False
    depthwise, pointwise = parts[1], parts[2]
    if not (isinstance(depthwise, nn.Conv2d) and isinstance(pointwise, nn.Conv2d)):
        return False
    if not (_is_zero_padded(depthwise) and _is_zero_padded(pointwise)):
        return False
    (side, other), (dilation, _), (stride, _) = depthwise.kernel_size, depthwise.dilation, depthwise.stride
    return (
        depthwise.groups == depthwise.in_channels == depthwise.out_channels
        and side == other
        and side % 2 == 1
        and depthwise.dilation == (dilation, dilation)
        and depthwise.stride == (stride, stride)
        and depthwise.padding == (dilation * (side // 2),) * 2
        and (pointwise.kernel_size, pointwise.stride, pointwise.padding) == ((1, 1), (1, 1), (0, 0))
        and pointwise.groups == 1
    )


def _is_zero_padded(convolution: nn.Conv2d) -> bool:
    """Return whether it has no bias and pads with a number of zeros."""
    return convolution.bias is None and convolution.padding_mode == "zeros" and not isinstance(convolution.padding, str)


def _is_relu(module: nn.Module) -> bool:
    return isinstance(module, nn.ReLU)


def _is_plain_norm(module: nn.Module) -> bool:
    """Return whether it always normalises by batch statistics and has no parameters."""
    return (
        isinstance(module, nn.BatchNorm2d)
        and not module.affine
        and not module.track_running_stats
        and module.eps == EPSILON
    )
