"""Evaluate a classifier on images that it has not seen: accuracy, also by class, confusion, worst mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.core.json_object import JsonObject, from_json_object, to_json_object
from archloom.core.metrics import ACCURACY, Metric
from archloom.data.loader import Loader

MOST_MISTAKES = 24
TOP = 5

Confusion = tuple[tuple[int, ...], ...]
"""Images by truth (rows) and prediction."""


@dataclass(frozen=True)
class Mistake:
    """One image with a wrong prediction."""

    index: int  # of the image in its source
    truth: int
    predicted: int
    probability: float  # of the prediction


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How good a classifier is on some images; shares are in percent.

    Attributes:
        images: How many images there are.
        top1: Share of images with a correct prediction.
        top5: Share of images whose class is among the five most probable.
        loss: Mean cross entropy.
        confusion: Images by truth (rows) and prediction.
        per_class: Share of correct predictions by class; None for a class without images.
        worst: The mistakes of the highest probability, where they were looked for.
    """

    images: int
    top1: float
    top5: float
    loss: float
    confusion: Confusion
    per_class: tuple[float | None, ...]
    worst: tuple[Mistake, ...] = ()

    metric: ClassVar[Metric] = ACCURACY

    @property
    def figure(self) -> float:
        """Return the figure of the metric: the accuracy in percent."""
        return self.top1

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the evaluation that a file holds."""
        return from_json_object(cls, value)

    def to_json(self) -> JsonObject:
        """Return the evaluation as a JSON object; `worst` only where there is something."""
        plain = to_json_object(self)
        return plain if self.worst else {name: item for name, item in plain.items() if name != "worst"}

    def confused_pairs(self, *, most: int) -> list[tuple[int, int, int]]:
        """Return (truth, prediction, images) of the most frequent mistakes."""
        pairs = [
            (truth, predicted, count)
            for truth, row in enumerate(self.confusion)
            for predicted, count in enumerate(row)
            if truth != predicted and count
        ]
        return sorted(pairs, key=lambda pair: -pair[2])[:most]


@torch.no_grad()
def evaluate(network: nn.Module, images: Loader, *, classes: int, mistakes: int = 0) -> Evaluation:
    """Evaluate a network on images, which must come in their own order; look for the worst `mistakes`."""
    assert not images.shuffle and not images.drop_last
    was_training = network.training
    network.eval()
    confusion = torch.zeros(classes, classes, dtype=torch.int64)
    loss, among_top, worst = 0.0, 0, list[Mistake]()
    for batch, index in zip(images.epoch(0), torch.split(images.indices, images.batch_size), strict=True):
        logits = network(batch.images).float()
        loss += float(F.cross_entropy(logits, batch.labels, reduction="sum"))
        labels, predicted = batch.labels.cpu(), logits.argmax(dim=1).cpu()
        confusion += torch.bincount(labels * classes + predicted, minlength=classes**2).view(classes, classes)
        best = logits.topk(min(TOP, classes), dim=1).indices
        among_top += int((best == batch.labels[:, None]).any(dim=1).sum())
        if mistakes:
            found = _list_mistakes(index, labels, predicted, logits.softmax(dim=1).amax(dim=1).cpu())
            worst = sorted([*worst, *found], key=lambda mistake: -mistake.probability)[:mistakes]
    network.train(was_training)
    count, correct = int(confusion.sum()), confusion.diagonal()
    return Evaluation(
        images=count,
        top1=100 * int(correct.sum()) / count,
        top5=100 * among_top / count,
        loss=loss / count,
        confusion=tuple(map(tuple, confusion.tolist())),
        per_class=_divide(correct.tolist(), confusion.sum(dim=1).tolist()),
        worst=tuple(worst),
    )


def _divide(parts: Sequence[int], wholes: Sequence[int]) -> tuple[float | None, ...]:
    return tuple(100 * part / whole if whole else None for part, whole in zip(parts, wholes, strict=True))


def _list_mistakes(index: Tensor, labels: Tensor, predicted: Tensor, probability: Tensor) -> list[Mistake]:
    return [
        Mistake(int(index[place]), int(labels[place]), int(predicted[place]), float(probability[place]))
        for place in (labels != predicted).nonzero().flatten().tolist()
    ]
