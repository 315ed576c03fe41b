"""Random crops, flips and cutout for a whole batch at once.

Pixels move as they are stored, mostly as bytes, which are a quarter of the floats they become. Bytes cannot hold the
data set's mean, so padding and cut-out squares are blanked after normalisation, where the mean is zero. Every image
draws its own numbers, yet nothing loops over images: augmentation must not be slower than a small network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache

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

    def __call__(self, pixels: Tensor, normalize: Callable[[Tensor], Tensor], generator: torch.Generator) -> Tensor:
        """Stored pixels as normalised and augmented images; both are [b, H, W, C] and contiguous.

        `normalize` gives memory of its own. Draws come from a CPU generator, so that every device sees the same; their
        order, crop, flip and cutout, is part of what a seed stands for.
        """
        _, height, width, _ = pixels.shape

        def draws(high: int) -> Tensor:
            """One number in 0 .. high - 1 per image, where the images are."""
            return torch.randint(high, (len(pixels),), generator=generator).to(pixels.device)

        places = 2 * self.crop_padding + 1
        crop = _Crop(self.crop_padding, draws(places), draws(places)) if self.crop_padding else None
        if self.flip:
            flip = draws(2)
            pixels, crop = _flipped(pixels, flip), crop and crop.of_flipped(flip)
        images = normalize(crop.taken(pixels) if crop else pixels)
        if crop:
            crop.blank_padding(images)
        if self.cutout:
            _cut_out(images, self.cutout, draws(height), draws(width))
        return images


@dataclass(frozen=True, eq=False)
class _Crop:
    """For every image the window that is taken of it once it is padded; windows are as large as images."""

    padding: int
    top: Tensor  # [b], in 0 .. 2 * padding
    left: Tensor

    def of_flipped(self, flip: Tensor) -> _Crop:
        """The windows that show in flipped images what these would have shown, then flipped."""
        return _Crop(self.padding, self.top, torch.where(flip == 1, 2 * self.padding - self.left, self.left))

    def taken(self, pixels: Tensor) -> Tensor:
        _, height, width, channels = pixels.shape
        padded = torch.nn.functional.pad(pixels, (0, 0, *(self.padding,) * 4))
        batch, rows, columns, _ = padded.shape
        corners = torch.arange(batch, device=pixels.device) * (rows * columns) + self.top * columns + self.left
        starts = corners[:, None] + torch.arange(0, height * columns, columns, device=pixels.device)
        # a row of a window is one stretch of memory from any pixel on: of a view of them all, those drawn are copied
        stretches = padded.flatten().unfold(0, width * channels, channels)
        return stretches.index_select(0, starts.flatten()).view(pixels.shape)

    def blank_padding(self, images: Tensor) -> None:
        _, height, width, channels = images.shape
        starts = range(self.padding, -self.padding - 1, -1)  # of the image in its window, for every draw
        rows = _marked(self.top, starts, height, height)
        columns = _marked(self.left, starts, width, width, channels)
        _lines(images).mul_(rows[:, :, None]).mul_(columns[:, None, :])


def _flipped(pixels: Tensor, flip: Tensor) -> Tensor:
    """Images whose `flip` is 1 left to right, the others as they are."""
    count = len(pixels)
    # to copy whole images is cheaper than to choose between two values for every pixel
    return torch.cat([pixels, pixels.flip(2)]).index_select(0, torch.arange(count, device=flip.device) + count * flip)


def _cut_out(images: Tensor, side: int, row: Tensor, column: Tensor) -> None:
    """Zeros in a square around a pixel of every image; the border cuts it."""
    _, height, width, channels = images.shape
    first = -(side // 2)
    rows = _marked(row, range(first, first + height), side, height)
    columns = _marked(column, range(first, first + width), side, width, channels)
    _lines(images).mul_(torch.maximum(1 - rows[:, :, None], 1 - columns[:, None, :]))


def _lines(images: Tensor) -> Tensor:
    """[b, H, W * C]: to multiply such rows takes vector instructions, which to fill by a mask of pixels does not."""
    return images.view(*images.shape[:2], -1)


def _marked(draws: Tensor, starts: range, side: int, length: int, channels: int = 1) -> Tensor:
    """[b, length * channels]: 1 at the `side` positions from an image's start on, where they exist, 0 at the others."""
    return _table(starts, side, length, channels, draws.device).index_select(0, draws)


@cache  # the same for every batch
def _table(starts: range, side: int, length: int, channels: int, device: torch.device) -> Tensor:
    position = torch.arange(length, device=device) - torch.tensor(starts, device=device)[:, None]
    return ((position >= 0) & (position < side)).to(torch.float32).repeat_interleave(channels, dim=1)
