"""How good a classifier is on images it has not seen: accuracy, also by class, what it confuses, worst mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.data.loader import Loader

MOST_MISTAKES = 24
TOP = 5


@torch.no_grad()
def judge(network: nn.Module, images: Loader, *, classes: int, mistakes: int = 0) -> dict[str, Any]:
    """What a network in evaluation mode makes of images, in percent; `images` must come in their own order.

    `confusion` counts images by truth (rows) and prediction. `worst` are the mistakes made with the most confidence;
    their index is that of the image in its source. A class without images has no accuracy.
    """
    assert not images.shuffle and not images.drop_last
    was_training = network.training
    network.eval()
    confusion = torch.zeros(classes, classes, dtype=torch.int64)
    loss, among_top, wrong = 0.0, 0, _Mistakes(mistakes)
    for batch, index in zip(images.epoch(0), torch.split(images.indices, images.batch_size), strict=True):
        logits = network(batch.images).float()
        loss += float(F.cross_entropy(logits, batch.labels, reduction="sum"))
        labels, predicted = batch.labels.cpu(), logits.argmax(dim=1).cpu()
        confusion += torch.bincount(labels * classes + predicted, minlength=classes**2).view(classes, classes)
        best = logits.topk(min(TOP, classes), dim=1).indices
        among_top += int((best == batch.labels[:, None]).any(dim=1).sum())
        wrong.add(index, labels, predicted, logits.softmax(dim=1).amax(dim=1).cpu())
    network.train(was_training)
    count, right = int(confusion.sum()), confusion.diagonal()
    told: dict[str, Any] = {
        "images": count,
        "top1": 100 * int(right.sum()) / count,
        "top5": 100 * among_top / count,
        "loss": loss / count,
        "confusion": confusion.tolist(),
        "per_class": _shares(right, confusion.sum(dim=1)),
    }
    return told | ({"worst": wrong.rows} if mistakes else {})


def _shares(right: Tensor, of: Tensor) -> list[float | None]:
    return [100 * part / whole if whole else None for part, whole in zip(right.tolist(), of.tolist(), strict=True)]


class _Mistakes:
    """The wrong answers of the highest probability so far."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.rows: list[Mapping[str, Any]] = []

    def add(self, index: Tensor, labels: Tensor, predicted: Tensor, probability: Tensor) -> None:
        rows = [
            {
                "index": int(index[place]),
                "truth": int(labels[place]),
                "predicted": int(predicted[place]),
                "probability": float(probability[place]),
            }
            for place in (labels != predicted).nonzero().flatten().tolist()
        ]
        self.rows = sorted([*self.rows, *rows], key=lambda row: -row["probability"])[: self._most]


def confused_pairs(confusion: list[list[int]], names: tuple[str, ...], *, most: int = 3) -> list[tuple[str, str, int]]:
    """(truth, prediction, images) of the most frequent mistakes."""
    pairs = [
        (names[truth], names[predicted], count)
        for truth, row in enumerate(confusion)
        for predicted, count in enumerate(row)
        if truth != predicted and count
    ]
    return sorted(pairs, key=lambda pair: -pair[2])[:most]
