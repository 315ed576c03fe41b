"""Image classification: name the class of an image; the score is the share of correct images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from archloom.core.metrics import ACCURACY, Metric
from archloom.data import DEFAULT_DATA
from archloom.data.source import ImageData
from archloom.tasks.base import ImageShape, NetworkShape, Task

DEVIATIONS = 2.0  # of the share of right guesses: better than that is better than guessing


class ImageClassification(Task):
    """Name the class of an image."""

    name: ClassVar[str] = "image classification"
    metric: ClassVar[Metric] = ACCURACY
    examples: ClassVar[str] = "images"
    outputs: ClassVar[str] = "classes"
    data_type: ClassVar[type] = ImageData
    default_data: ClassVar[str] = DEFAULT_DATA
    any_shape: ClassVar[NetworkShape] = ImageShape(classes=2, colours=3)

    def shape_of(self, data: Any) -> ImageShape:
        """Return the number of classes, and the channels of an image."""
        return ImageShape(len(data.classes), data.channels)

    def score(self, logits: Tensor, labels: Tensor, *, loss: Tensor | None = None) -> Tensor:
        """Return the share of correct images."""
        with torch.no_grad():
            return (logits.argmax(dim=1) == labels).float().mean()

    def sum_scores(self, logits: Tensor, labels: Tensor) -> float:
        """Return the number of correct images."""
        return int((logits.argmax(dim=1) == labels).sum())

    def score_of_sum(self, total: float, examples: int) -> float:
        """Return the share of correct images."""
        return total / examples

    def score_examples(self, logits: Tensor, labels: Tensor, *, columns: int = 1) -> Tensor:
        """Return whether each image is correct."""
        return logits.argmax(dim=1) == labels

    def chance_sentence(self, score: float, counts: Sequence[int]) -> str:
        """Return a warning if an accuracy is no better than always naming the most frequent class."""
        images, chance = sum(counts), guessing_accuracy(counts)
        if not images or score > chance + DEVIATIONS * math.sqrt(chance * (1 - chance) / images):
            return ""
        return (
            f"The network has learned nothing: its accuracy, {100 * score:.1f} % of {images:,} images, is no better "
            f"than always naming the most frequent class, {100 * chance:.1f} %."
        )

    def describe_difference(self, points: float, low: float, high: float, other: str) -> str:
        """Return `1.8 points above the ResNet block (95 % +0.4 to +3.2)`."""
        where = "above" if points >= 0 else "below"
        return f"{abs(points):.1f} points {where} {other} (95 % {low:+.1f} to {high:+.1f})"


def guessing_accuracy(counts: Sequence[int]) -> float:
    """Return the accuracy, from 0 to 1, of always naming the most frequent of classes with so many images."""
    return max(counts, default=0) / max(sum(counts), 1)
