"""Mixing on torch's functions, by the way that is faster: `mix_by_term` for few pixels, `rows` for many."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from archloom.fast import mix_by_row, mix_by_term
from archloom.fast.kernel_arguments import Term

FEW = 4096  # pixels of a batch, up to which it is the number of calls that counts


def choose_mix(image: Tensor) -> Callable[[Sequence[Term], Tensor], Tensor]:
    """What does as `Kernels.mix` says, for images like this one."""
    return mix_by_term.mix if _is_small(image) else mix_by_row.mix


def choose_mix_backward(image: Tensor) -> Callable[..., Tensor | None]:
    """What does as `Kernels.mix_backward` says."""
    return mix_by_term.mix_backward if _is_small(image) else mix_by_row.mix_backward


def _is_small(image: Tensor) -> bool:
    return image.is_cpu and image[..., 0].numel() <= FEW
