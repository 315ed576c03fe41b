"""The arguments of the kernels of a fused cell: images to add up, and slots for their gradients.

Images are NHWC, [batch, height, width, channels], with channels adjacent in memory. They may be a slice of the channels
of a wider image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

EPSILON = 1e-5  # of batch normalisation, as in torch


@dataclass(frozen=True)
class Geometry:
    """Hold stride and dilation of a depthwise kernel; its padding keeps the size, up to the stride."""

    stride: int = 1
    dilation: int = 1


@dataclass
class Term:
    """Hold one term of a mixture: an image, normalised or not, and its `moments` (mean and 1/std, [2, channels])."""

    image: Tensor
    normalized: bool
    moments: Tensor | None = None
    pixel_stride: int | None = None  # known to the kernels that asked for it once


@dataclass
class Slot:
    """Accumulate the gradients of an image, in memory given from the start or in the first gradient added."""

    image: Tensor | None = None
    filled: bool = False

    def add(self, value: Tensor) -> None:
        """Add a gradient, which the slot may keep and overwrite."""
        if self.image is None:
            self.image = value
        elif self.filled:
            self.image.add_(value)
        else:
            self.image.copy_(value)
        self.filled = True

    def buffer(self, like: Tensor) -> Tensor:
        """Return the memory of the slot; allocate it if there is none."""
        if self.image is None:
            self.image = torch.empty(like.shape, dtype=like.dtype, device=like.device)
        return self.image


def check_normalizable(image: Tensor) -> None:
    """Refuse an image with one value per channel, which has no variance, in the words of torch."""
    if image.numel() == image.shape[-1]:
        raise ValueError(f"Expected more than 1 value per channel, got an image of shape {list(image.shape)}")


Terms = Sequence[Term]
Slots = Sequence[Slot | None]  # None: the gradient of that image is not wanted
Geometries = Sequence[Geometry]
