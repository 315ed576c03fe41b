"""Choose the faster way to mix in torch: `mix_by_term` for few pixels, `mix_by_row` for many."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from archloom.fast import mix_by_row, mix_by_term
from archloom.fast.kernel_arguments import Terms

FEW = 4096  # pixels of a batch, up to which the number of calls decides


def choose_mix(image: Tensor) -> Callable[[Terms, Tensor], Tensor]:
    """Return the faster `Kernels.mix` for images like this one."""
    return mix_by_term.mix if _is_small(image) else mix_by_row.mix


def choose_mix_backward(image: Tensor) -> Callable[..., Tensor | None]:
    """Return the faster `Kernels.mix_backward` for images like this one."""
    return mix_by_term.mix_backward if _is_small(image) else mix_by_row.mix_backward


def _is_small(image: Tensor) -> bool:
    return image.is_cpu and image[..., 0].numel() <= FEW
