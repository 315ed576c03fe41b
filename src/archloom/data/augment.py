"""Random crops, flips, colours and cutout for a whole batch at once.

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

from archloom.core.errors import SettingError, require

TRIES = 10  # for a part of the image that lies within it; then the whole of it is cut
AREA = (0.08, 1.0)  # of a random part, as a share of the image
SHAPE = (3 / 4, 4 / 3)  # its width by its height
GREY = (0.299, 0.587, 0.114)  # how bright red, green and blue look


@dataclass(frozen=True)
class Augment:
    """What may happen to a training image. The default leaves it as it is.

    Attributes:
        crop_padding: pixels of zeros on every side, from which a crop of the old size is cut.
        flip: mirror one image in two.
        cutout: side of a square of zeros around a random pixel.
        resized_crop: side of the square to which a random part of the image is scaled.
        colour_jitter: largest change of brightness, contrast and saturation, as a share.
        centre_crop: side of the centred square that evaluation cuts out.

    Raises:
        SettingError: a value is negative, or two kinds of crop are given.

    Examples:
        >>> import archloom
        >>> archloom.Augment(crop_padding=4, flip=True).for_evaluation() == archloom.Augment()
        True
    """

    crop_padding: int = 0  # pixels of zeros on every side, from which a crop of the old size is cut
    flip: bool = False  # left to right, one image in two
    cutout: int = 0  # side of a square of zeros around a random pixel (DeVries & Taylor, 2017)
    resized_crop: int = 0  # side of a square that a random part of the image, 8 to 100 % of it, is scaled to
    colour_jitter: float = 0.0  # brightness, contrast and saturation change by up to this share; for values in 0..1
    centre_crop: int = 0  # side of the centred square that is cut out, for evaluation with `resized_crop`

    def __post_init__(self) -> None:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        require(
            {f"augment.{name} must be 0 or more, got {value}": value >= 0 for name, value in values.items()}
            | {
                f"augment.colour_jitter must be at most 1, got {self.colour_jitter}": self.colour_jitter <= 1,
                "only one of augment.crop_padding, resized_crop and centre_crop may be above 0": (
                    [self.crop_padding > 0, self.resized_crop > 0, self.centre_crop > 0].count(True) <= 1
                ),
            }
        )

    def for_evaluation(self) -> Augment:
        """Return the augmentation for evaluation: nothing random, at the size of training."""
        return Augment(centre_crop=self.resized_crop or self.centre_crop)

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width after augmentation."""
        side = self.resized_crop or self.centre_crop
        return (side, side) if side else (height, width)

    def __call__(self, pixels: Tensor, normalize: Callable[[Tensor], Tensor], generator: torch.Generator) -> Tensor:
        """Augment and normalise stored pixels; both are [b, H, W, C] and contiguous.

        `normalize` gives memory of its own. Draws come from a CPU generator, so that every device sees the same; their
        order, crop, flip, colours and cutout, is part of what a seed stands for.
        """
        if self.resized_crop:
            pixels = _resample(to_units(pixels), *_draw_parts(pixels, generator), side=self.resized_crop)
        if self.centre_crop:
            pixels = _crop_centre(pixels, self.centre_crop)
        _, height, width, _ = pixels.shape

        def draws(high: int) -> Tensor:
            """Return one number in 0 .. high - 1 per image, where the images are."""
            return torch.randint(high, (len(pixels),), generator=generator).to(pixels.device)

        places = 2 * self.crop_padding + 1
        crop = _Crop(self.crop_padding, draws(places), draws(places)) if self.crop_padding else None
        if self.flip:
            flip = draws(2)
            pixels, crop = _flip(pixels, flip), crop and crop.flip_windows(flip)
        if self.colour_jitter:
            pixels = _recolour(to_units(pixels), self.colour_jitter, generator)
        images = normalize(crop.cut(pixels) if crop else pixels)
        if crop:
            crop.blank_padding(images)
        if self.cutout:
            _cut_out(images, self.cutout, draws(height), draws(width))
        return images


@dataclass(frozen=True, eq=False)
class _Crop:
    """For every image the window that is cut of it once it is padded; windows are as large as images."""

    padding: int
    top: Tensor  # [b], in 0 .. 2 * padding
    left: Tensor

    def flip_windows(self, flip: Tensor) -> _Crop:
        """Return the windows of flipped images that show the same content, flipped."""
        return _Crop(self.padding, self.top, torch.where(flip == 1, 2 * self.padding - self.left, self.left))

    def cut(self, pixels: Tensor) -> Tensor:
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
        rows = _mark(self.top, starts, height, height)
        columns = _mark(self.left, starts, width, width, channels)
        _lines(images).mul_(rows[:, :, None]).mul_(columns[:, None, :])


def _flip(pixels: Tensor, flip: Tensor) -> Tensor:
    """Mirror the images whose `flip` is 1."""
    count = len(pixels)
    # to copy whole images is cheaper than to choose between two values for every pixel
    return torch.cat([pixels, pixels.flip(2)]).index_select(0, torch.arange(count, device=flip.device) + count * flip)


def _cut_out(images: Tensor, side: int, row: Tensor, column: Tensor) -> None:
    """Set a square around a pixel of every image to zero, clipped at the border."""
    _, height, width, channels = images.shape
    first = -(side // 2)
    rows = _mark(row, range(first, first + height), side, height)
    columns = _mark(column, range(first, first + width), side, width, channels)
    _lines(images).mul_(torch.maximum(1 - rows[:, :, None], 1 - columns[:, None, :]))


def _lines(images: Tensor) -> Tensor:
    """Return [b, H, W * C]: vector instructions multiply such rows, but cannot fill a mask of pixels."""
    return images.view(*images.shape[:2], -1)


def _mark(draws: Tensor, starts: range, side: int, length: int, channels: int = 1) -> Tensor:
    """Return [b, length * channels]: 1 at the `side` positions from an image's start on, 0 at the others."""
    return _table(starts, side, length, channels, draws.device).index_select(0, draws)


@cache  # the same for every batch
def _table(starts: range, side: int, length: int, channels: int, device: torch.device) -> Tensor:
    position = torch.arange(length, device=device) - torch.tensor(starts, device=device)[:, None]
    return ((position >= 0) & (position < side)).to(torch.float32).repeat_interleave(channels, dim=1)


def to_units(pixels: Tensor) -> Tensor:
    """Return a copy of pixels as float32: bytes scaled to 0..1, floats as they are."""
    floats = pixels.to(torch.float32, copy=True)
    return floats.div_(255) if pixels.dtype == torch.uint8 else floats


# --- parts of an image, scaled


def _draw_parts(pixels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sample top, left, height and width [b] of a part of every image, in fractional pixels."""
    count, rows, columns, _ = pixels.shape
    draws = torch.rand(4, TRIES, count, generator=generator)  # area, shape, top, left
    area = rows * columns * (AREA[0] + (AREA[1] - AREA[0]) * draws[0])
    logarithm = torch.tensor(SHAPE).log()
    shape = (logarithm[0] + (logarithm[1] - logarithm[0]) * draws[1]).exp()
    height, width = (area / shape).sqrt(), (area * shape).sqrt()
    fits = (height <= rows) & (width <= columns)
    first = fits.to(torch.int64).argmax(dim=0, keepdim=True)  # of the tries that fit; 0 where none does
    whole = ~fits.any(dim=0)

    def drawn(values: Tensor, instead: float) -> Tensor:
        return torch.where(whole, instead, values.gather(0, first)[0])

    height, width = drawn(height, rows), drawn(width, columns)
    top, left = drawn(draws[2], 0.0) * (rows - height), drawn(draws[3], 0.0) * (columns - width)
    return tuple(part.to(pixels.device) for part in (top, left, height, width))  # type: ignore[return-value]


def _resample(pixels: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor, *, side: int) -> Tensor:
    """Scale parts of float images [b, H, W, C] to a square, by interpolation."""
    _, rows, columns, _ = pixels.shape
    centres = (torch.arange(side, device=pixels.device) + 0.5) / side  # of the pixels to be, as shares of the part
    down = (top[:, None] + centres * height[:, None]) * 2 / rows - 1  # [b, side] in -1..1, as grid_sample counts
    across = (left[:, None] + centres * width[:, None]) * 2 / columns - 1
    grid = torch.stack([across[:, None, :].expand(-1, side, -1), down[:, :, None].expand(-1, -1, side)], dim=3)
    channels_first = pixels.permute(0, 3, 1, 2)
    cut = torch.nn.functional.grid_sample(channels_first, grid, padding_mode="border", align_corners=False)
    return cut.permute(0, 2, 3, 1).contiguous()


def _crop_centre(pixels: Tensor, side: int) -> Tensor:
    _, height, width, _ = pixels.shape
    if side > min(height, width):
        raise SettingError(f"a centre of {side} pixels must lie within the image, got {height}x{width}")
    top, left = (height - side) // 2, (width - side) // 2
    return pixels[:, top : top + side, left : left + side].contiguous()


# --- colours


def _recolour(pixels: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Change brightness, contrast and saturation of float images [b, H, W, C], in a random order per batch."""
    changes = [_brightness, _contrast, _saturation]
    for change in torch.randperm(len(changes), generator=generator).tolist():
        factors = 1 + share * (2 * torch.rand(len(pixels), generator=generator) - 1)
        pixels = changes[change](pixels, factors.to(pixels.device).view(-1, 1, 1, 1)).clamp_(0, 1)
    return pixels


def _brightness(pixels: Tensor, factor: Tensor) -> Tensor:
    return pixels * factor


def _contrast(pixels: Tensor, factor: Tensor) -> Tensor:
    mean = _grey(pixels).mean(dim=(1, 2), keepdim=True)
    return mean + factor * (pixels - mean)


def _saturation(pixels: Tensor, factor: Tensor) -> Tensor:
    grey = _grey(pixels)
    return grey + factor * (pixels - grey)


def _grey(pixels: Tensor) -> Tensor:
    """Return grey images [b, H, W, 1]; without three colours, the mean of the channels."""
    if pixels.shape[3] != len(GREY):
        return pixels.mean(dim=3, keepdim=True)
    return (pixels * torch.tensor(GREY, device=pixels.device)).sum(dim=3, keepdim=True)
