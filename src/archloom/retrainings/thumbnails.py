"""Thumbnails for a page: kept in one file, so that the page can be written again without the data."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from archloom.core.files import reading, write_atomically

SIDE = 96  # pixels


def keep_thumbnails(path: Path, images: Tensor) -> None:
    """Write images [n, C, H, W], bytes or floats, as one row of squares."""
    row = Image.new("RGB", (SIDE * max(1, len(images)), SIDE), "white")
    for place, image in enumerate(images):
        picture = _picture(image)
        picture = _fit_into_square(picture)
        row.paste(picture, (place * SIDE + (SIDE - picture.width) // 2, (SIDE - picture.height) // 2))
    write_atomically(path, _png(row))


def read_thumbnails(path: Path, count: int) -> list[str]:
    """Return the squares that `keep_thumbnails` wrote as data URLs; none if the file is missing or does not fit."""
    if count == 0 or not path.is_file():
        return []
    with reading(path):
        data = path.read_bytes()
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as row:
            if row.size != (SIDE * count, SIDE):
                return []
            squares = [row.crop((place * SIDE, 0, (place + 1) * SIDE, SIDE)) for place in range(count)]
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError):  # a page is written without, rather than not
        return []
    return ["data:image/png;base64," + base64.b64encode(_png(square)).decode("ascii") for square in squares]


def _picture(image: Tensor) -> Image.Image:
    pixels = _bytes(image).permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(_three_channels(pixels), "RGB")


def _bytes(image: Tensor) -> Tensor:
    """Return bytes unchanged; floats in 0..1 scaled; others scaled from their own range."""
    if image.dtype == torch.uint8:
        return image
    image = image.float()
    low, high = image.min(), image.max()
    if low < 0 or high > 1:
        image = (image - low) / (high - low).clamp(min=1e-6)
    return (255 * image).round().to(torch.uint8)


def _three_channels(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return [H, W, 3]; images without three colours show their first channel in grey."""
    colours = pixels[..., :3] if pixels.shape[-1] >= 3 else pixels[..., :1].repeat(3, axis=-1)
    return np.ascontiguousarray(colours)


def _fit_into_square(picture: Image.Image) -> Image.Image:
    """Return the image scaled to fit a square; small images are enlarged pixel by pixel."""
    grows = max(picture.size) < SIDE
    method = Image.Resampling.NEAREST if grows else Image.Resampling.BILINEAR
    return ImageOps.contain(picture, (SIDE, SIDE), method=method)


def _png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()
