"""Random crops, flips and cutout for a whole batch at once.

Batches are normalised first and augmented after, so that padding and cut-out squares hold the data set's mean. Every
image draws its own numbers, yet nothing loops over images: augmentation must not be slower than a small network.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from archloom.errors import require


@dataclass(frozen=True)
class Augment:
    """What may happen to a training image. The default leaves it as it is."""

    crop_padding: int = 0  # pixels of zeros on every side, from which a crop of the old size is taken
    flip: bool = False  # left to right, one image in two
    cutout: int = 0  # side of a square of zeros around a random pixel (DeVries & Taylor, 2017)

    def __post_init__(self) -> None:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        require({f"augment.{name} must be 0 or more, got {value}": value >= 0 for name, value in values.items()})

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Augment float images [b, C, H, W]. Draws come from a CPU generator, so that every device sees the same."""
        if self.crop_padding:
            images = _cropped(images, self.crop_padding, generator)
        if self.flip:
            images = _flipped(images, generator)
        if self.cutout:
            images = _cut_out(images, self.cutout, generator)
        return images


def _draws(high: int, images: Tensor, generator: torch.Generator) -> Tensor:
    """One number in 0 .. high - 1 per image, where the images are."""
    return torch.randint(high, (len(images),), generator=generator).to(images.device)


def _cropped(images: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    batch, _, height, width = images.shape
    top = _draws(2 * padding + 1, images, generator)
    left = _draws(2 * padding + 1, images, generator)
    padded = torch.nn.functional.pad(images, (padding,) * 4)
    # a view of every crop there is, [b, tops, lefts, C, H, W]: only the crops drawn are copied
    crops = padded.unfold(2, height, 1).unfold(3, width, 1).permute(0, 2, 3, 1, 4, 5)
    return crops[torch.arange(batch, device=images.device), top, left]


def _flipped(images: Tensor, generator: torch.Generator) -> Tensor:
    flip = _draws(2, images, generator).bool()
    return torch.where(flip[:, None, None, None], images.flip(3), images)


def _cut_out(images: Tensor, side: int, generator: torch.Generator) -> Tensor:
    _, _, height, width = images.shape
    rows = _within(_draws(height, images, generator), side, height)
    columns = _within(_draws(width, images, generator), side, width)
    square = rows[:, None, :, None] & columns[:, None, None, :]
    return images.masked_fill(square, 0.0)


def _within(centre: Tensor, side: int, length: int) -> Tensor:
    """[b, length]: which positions lie in the stretch of `side` around each centre; the image's border cuts it."""
    start = (centre - side // 2)[:, None]
    positions = torch.arange(length, device=centre.device)
    return (positions >= start) & (positions < start + side)
