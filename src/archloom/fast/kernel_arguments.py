"""What the inner loops of a fused cell are given: images to be added up, and places for the gradients by them.

Images are pixels-last, [batch, height, width, channels], with channels adjacent in memory; they may be a slice of the
channels of a wider image.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

EPSILON = 1e-5  # of a normalisation, as torch has it


@dataclass(frozen=True)
class Geometry:
    """How a depthwise kernel walks over an image; its padding keeps the size, up to the stride."""

    stride: int = 1
    dilation: int = 1


@dataclass
class Term:
    """An image that counts as it is, or normalised. `moments` [2, channels] are its mean and 1/std, once known."""

    image: Tensor
    normalized: bool
    moments: Tensor | None = None


@dataclass
class Slot:
    """Where the gradients by an image gather: in a place of memory given from the start, or in the first that comes."""

    image: Tensor | None = None
    filled: bool = False

    def add(self, value: Tensor) -> None:
        """Take in a gradient that nobody else holds."""
        if self.image is None:
            self.image = value
        elif self.filled:
            self.image.add_(value)
        else:
            self.image.copy_(value)
        self.filled = True

    def buffer(self, like: Tensor) -> Tensor:
        """The place, made if there is none."""
        if self.image is None:
            self.image = torch.empty(like.shape, dtype=like.dtype, device=like.device)
        return self.image


def check_normalizable(image: Tensor) -> None:
    """One value per channel has no spread; torch refuses it in the same words."""
    if image.numel() == image.shape[-1]:
        raise ValueError(f"Expected more than 1 value per channel, got an image of shape {list(image.shape)}")
