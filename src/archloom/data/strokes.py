"""Strokes: 10,000 grey images of 16x16 pixels in 10 classes, generated in about a second from a fixed seed.

An image shows two different figures out of five; the pair is the class. Each figure is rotated, scaled, shifted and
slightly bent. Two clutter strokes and noise lie over both. A network must find each figure in fine detail and combine
the two, so cells of NAS-Bench-201 differ by many times their spread over seeds; on digits they do not.
"""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path

import torch
from torch import Tensor

from archloom.data.source import ImageData, InMemory, measure_statistics

SIDE = 16
TRAIN_IMAGES, TEST_IMAGES = 6_000, 4_000
CLUTTER, CLUTTER_LENGTH = 2, 0.4  # strokes that mean nothing; lengths are in units of half the image
BEND = 0.05  # standard deviation of the end of a stroke, in units of its figure
DISTANCE, SHIFT = 0.48, 0.06  # of a figure from the centre, and the largest deviation from it
SMALLEST, LARGEST = 0.42, 0.52
THICKNESS, NOISE, FAINTEST = 0.08, 0.12, 0.6
SEED = 0

_TOP, _LEFT, _RIGHT = (0.0, 0.9), (-0.78, -0.45), (0.78, -0.45)
_FIGURES = {  # strokes from end to end; a figure reaches from -1 to 1, and the shorter ones repeat their last stroke
    "triangle": ((_TOP, _LEFT), (_LEFT, _RIGHT), (_RIGHT, _TOP)),
    "cross": (((-0.8, 0.0), (0.8, 0.0)), ((0.0, -0.8), (0.0, 0.8)), ((0.0, -0.8), (0.0, 0.8))),
    "zigzag": (((-0.65, 0.65), (0.65, 0.65)), ((0.65, 0.65), (-0.65, -0.65)), ((-0.65, -0.65), (0.65, -0.65))),
    "cup": (((-0.6, 0.7), (-0.6, -0.6)), ((-0.6, -0.6), (0.6, -0.6)), ((0.6, -0.6), (0.6, 0.7))),
    "tee": (((-0.7, 0.65), (0.7, 0.65)), ((0.0, 0.65), (0.0, -0.8)), ((0.0, 0.65), (0.0, -0.8))),
}
FIGURES = tuple(_FIGURES)
PAIRS = tuple(combinations(range(len(FIGURES)), 2))  # of the figures of each class
CLASSES = len(PAIRS)


def strokes(directory: Path | None = None) -> ImageData:
    """Return the data set; `directory` is not used."""
    generator = torch.Generator().manual_seed(SEED)
    count = TRAIN_IMAGES + TEST_IMAGES
    labels = (torch.arange(count) % CLASSES)[torch.randperm(count, generator=generator)]
    images = draw_images(labels, generator)
    train = InMemory(images[:TRAIN_IMAGES], labels[:TRAIN_IMAGES])
    mean, std = measure_statistics(train)
    return ImageData(
        name="strokes",
        train=train,
        classes=tuple(f"{FIGURES[first]} and {FIGURES[second]}" for first, second in PAIRS),
        test=InMemory(images[TRAIN_IMAGES:], labels[TRAIN_IMAGES:]),
        mean=mean,
        std=std,
    )


def draw_images(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Return one uint8 image [1, side, side] for every label."""
    segments = torch.cat([*_place_pairs(labels, generator), _clutter(len(labels), generator)], dim=1)
    return _with_noise(_draw(segments), generator)


def _place_pairs(labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the strokes of both figures of every image, on opposite sides of its centre."""
    first, second = torch.tensor(PAIRS)[labels].unbind(dim=1)
    angle = 2 * math.pi * _uniform(generator, len(labels))
    offset = DISTANCE * torch.stack([angle.cos(), angle.sin()], dim=1)
    return _place(first, offset, generator), _place(second, -offset, generator)


def _place(figures: Tensor, offset: Tensor, generator: torch.Generator) -> Tensor:
    """Return the strokes of one figure per image, bent, turned, scaled and shifted: images x strokes x ends x 2."""
    ends = torch.tensor([_FIGURES[name] for name in FIGURES])[figures]
    bent = ends + BEND * torch.randn(ends.shape, generator=generator)
    shift = offset + SHIFT * (2 * _uniform(generator, len(figures), 2) - 1)
    turned = bent.flatten(1, 2) @ _sample_turns(len(figures), generator) + shift[:, None]
    return turned.view_as(ends)


def _sample_turns(count: int, generator: torch.Generator) -> Tensor:
    """Return matrices that rotate by any angle and scale."""
    angle = 2 * math.pi * _uniform(generator, count)
    scale = SMALLEST + (LARGEST - SMALLEST) * _uniform(generator, count)
    cosine, sine = scale * angle.cos(), scale * angle.sin()
    return torch.stack([cosine, sine, -sine, cosine], dim=1).view(count, 2, 2)


def _clutter(count: int, generator: torch.Generator) -> Tensor:
    start = 2 * _uniform(generator, count, CLUTTER, 2) - 1
    length = CLUTTER_LENGTH * (2 * _uniform(generator, count, CLUTTER, 2) - 1)
    return torch.stack([start, start + length], dim=2)


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
    contrast = FAINTEST + (1 - FAINTEST) * _uniform(generator, len(brightness), 1)
    noisy = contrast * brightness + NOISE * torch.randn(brightness.shape, generator=generator)
    return (noisy.clamp(0, 1) * 255).round().to(torch.uint8).view(-1, 1, SIDE, SIDE)


def _uniform(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=generator)
