"""Accuracy, confusion and mistakes, on a classifier whose answers are known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from archloom.data.loader import Loader
from archloom.data.source import InMemory
from archloom.retrainings.evaluation import confused_pairs, judge

CLASSES = 7


class Told(nn.Module):
    """Answers by the first pixel, as sure as the second one says; while training it would answer wrongly."""

    def forward(self, images: Tensor) -> Tensor:
        answer = images[:, 0, 0, 0].long() + self.training
        return torch.nn.functional.one_hot(answer % CLASSES, CLASSES) * images[:, 0, 0, 1:2]


def images_of(answers: list[int], labels: list[int], sureness: list[float], *, batch_size: int = 3) -> Loader:
    pixels = torch.zeros(len(labels), 1, 1, 2)
    pixels[:, 0, 0, 0], pixels[:, 0, 0, 1] = torch.tensor(answers), torch.tensor(sureness)
    source, order = InMemory(pixels, torch.tensor(labels)), torch.arange(len(labels)).flip(0)
    return Loader(
        source,
        order,
        batch_size=batch_size,
        mean=[0.0],
        std=[1.0],
        augment=None,
        seed=0,
        shuffle=False,
        drop_last=False,
    )


def test_what_is_right_is_counted_by_class() -> None:
    network = Told().train()
    loader = images_of([0, 0, 1, 2, 2], [0, 0, 1, 1, 2], [9.0, 9.0, 9.0, 4.0, 9.0])
    judged = judge(network, loader, classes=CLASSES, mistakes=24)
    assert network.training
    assert (judged["images"], judged["top1"]) == (5, 80.0)
    assert judged["per_class"] == [100.0, 50.0, 100.0, None, None, None, None]
    assert judged["confusion"][1][:3] == [0, 1, 1]
    probability = torch.tensor([0.0, 0, 4.0, 0, 0, 0, 0]).softmax(0)[2]
    assert judged["worst"] == [
        {"index": 3, "truth": 1, "predicted": 2, "probability": pytest.approx(float(probability))}
    ]
    losses = torch.tensor([9.0] * 4).exp().add(6).log().sub(9).sum() + torch.tensor(4.0).exp().add(6).log()
    assert judged["loss"] == pytest.approx(float(losses) / 5)


def test_the_surest_mistakes_come_first_over_all_batches() -> None:
    loader = images_of([1] * 8, [0] * 8, [1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0, 5.0])
    worst = judge(Told(), loader, classes=CLASSES, mistakes=3)["worst"]
    assert [row["index"] for row in worst] == [1, 3, 5]
    assert "worst" not in judge(Told(), loader, classes=CLASSES)


def test_top_five_is_at_most_all_classes() -> None:
    class Ranked(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return torch.arange(3.0).expand(len(images), 3)

    loader = images_of([0, 0], [0, 2], [1.0, 1.0])
    assert judge(Ranked(), loader, classes=3)["top5"] == 100.0


def test_the_most_frequent_confusions_are_named() -> None:
    counts = [[5, 2, 0], [4, 5, 1], [0, 0, 5]]
    assert confused_pairs(counts, ("a", "b", "c"), most=2) == [("b", "a", 4), ("a", "b", 2)]
    assert confused_pairs([[1, 0], [0, 1]], ("a", "b")) == []
