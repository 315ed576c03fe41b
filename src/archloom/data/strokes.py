"""Strokes: 14,000 grey images of 16x16 pixels in 10 classes, generated in a second from a fixed seed.

Each class is a polyline of five points. An image shows it rotated, scaled, shifted and slightly bent, with two clutter
strokes and noise. Cells of NAS-Bench-201 differ on it by several times their spread over seeds; on digits they do not.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor

from archloom.data.source import ImageData, InMemory, measure_statistics

CLASSES, POINTS, SIDE = 10, 5, 16
TRAIN_IMAGES, TEST_IMAGES = 10_000, 4_000
CLUTTER = 2  # strokes that mean nothing
BEND = 0.02  # standard deviation of a point; images reach from -1 to 1
SHIFT, SMALLEST, LARGEST = 0.2, 0.8, 1.1
THICKNESS, NOISE = 0.09, 0.1
SHAPE_SEED, IMAGE_SEED = 1234, 0


def strokes(directory: Path | None = None) -> ImageData:
    """Return the data set; `directory` is not used."""
    generator = torch.Generator().manual_seed(IMAGE_SEED)
    count = TRAIN_IMAGES + TEST_IMAGES
    labels = (torch.arange(count) % CLASSES)[torch.randperm(count, generator=generator)]
    segments = torch.cat([_shapes(labels, generator), _clutter(count, generator)], dim=1)
    images = _with_noise(_draw(segments), generator)
    train = InMemory(images[:TRAIN_IMAGES], labels[:TRAIN_IMAGES])
    mean, std = measure_statistics(train)
    return ImageData(
        name="strokes",
        train=train,
        classes=tuple(f"shape {number}" for number in range(CLASSES)),
        test=InMemory(images[TRAIN_IMAGES:], labels[TRAIN_IMAGES:]),
        mean=mean,
        std=std,
    )


def _shapes(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Return the segments of each image's own polyline: images x segments x ends x coordinates."""
    corners = torch.rand(CLASSES, POINTS, 2, generator=torch.Generator().manual_seed(SHAPE_SEED)) * 1.6 - 0.8
    count = len(labels)
    points = corners[labels] + BEND * torch.randn(count, POINTS, 2, generator=generator)
    angle = (_uniform(generator, count) * 2 - 1) * math.pi
    scale = SMALLEST + (LARGEST - SMALLEST) * _uniform(generator, count)
    cosine, sine = scale * angle.cos(), scale * angle.sin()
    turn = torch.stack([torch.stack([cosine, -sine], dim=1), torch.stack([sine, cosine], dim=1)], dim=1)
    points = points @ turn.transpose(1, 2) + (_uniform(generator, count, 1, 2) * 2 - 1) * SHIFT
    return torch.stack([points[:, :-1], points[:, 1:]], dim=2)


def _clutter(count: int, generator: torch.Generator) -> Tensor:
    start = _uniform(generator, count, CLUTTER, 2) * 2 - 1
    return torch.stack([start, start + (_uniform(generator, count, CLUTTER, 2) * 2 - 1) * 0.6], dim=2)


def _draw(segments: Tensor) -> Tensor:
    """Return the brightness of every pixel by its distance from the nearest segment: images x pixels."""
    axis = (torch.arange(SIDE) + 0.5) / SIDE * 2 - 1
    pixels = torch.cartesian_prod(axis, axis)
    return torch.cat(
        [_brightness(part, pixels) for part in torch.split(segments, 1000)]
    )  # all at once would take a gigabyte


def _brightness(segments: Tensor, pixels: Tensor) -> Tensor:
    start, direction = segments[:, :, 0, None], segments[:, :, 1, None] - segments[:, :, 0, None]
    offset = pixels - start  # images x segments x pixels x coordinates
    along = ((offset * direction).sum(dim=-1) / direction.square().sum(dim=-1).clamp_min(1e-6)).clamp(0, 1)
    distance = (offset - along[..., None] * direction).norm(dim=-1).amin(dim=1)
    return torch.exp(-((distance / THICKNESS) ** 2))


def _with_noise(brightness: Tensor, generator: torch.Generator) -> Tensor:
    contrast = 0.6 + 0.4 * _uniform(generator, len(brightness), 1)
    noisy = contrast * brightness + NOISE * torch.randn(brightness.shape, generator=generator)
    return (noisy.clamp(0, 1) * 255).round().to(torch.uint8).view(-1, 1, SIDE, SIDE)


def _uniform(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=generator)
