"""Accuracy, confusion and mistakes, on a classifier whose answers are known."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn

from archloom.data.loader import Loader
from archloom.data.source import InMemory
from archloom.retrainings.evaluation import Evaluation, Mistake, evaluate

CLASSES = 7


class KnownAnswers(nn.Module):
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


def test_correct_predictions_are_counted_by_class() -> None:
    network = KnownAnswers().train()
    loader = images_of([0, 0, 1, 2, 2], [0, 0, 1, 1, 2], [9.0, 9.0, 9.0, 4.0, 9.0])
    found = evaluate(network, loader, classes=CLASSES, mistakes=24)
    assert network.training
    assert (found.images, found.top1) == (5, 80.0)
    assert found.per_class == (100.0, 50.0, 100.0, None, None, None, None)
    assert found.confusion[1][:3] == (0, 1, 1)
    probability = torch.tensor([0.0, 0, 4.0, 0, 0, 0, 0]).softmax(0)[2]
    assert found.worst == (Mistake(3, 1, 2, pytest.approx(float(probability))),)
    losses = torch.tensor([9.0] * 4).exp().add(6).log().sub(9).sum() + torch.tensor(4.0).exp().add(6).log()
    assert found.loss == pytest.approx(float(losses) / 5)


def test_mistakes_of_the_highest_probability_come_first_over_all_batches() -> None:
    loader = images_of([1] * 8, [0] * 8, [1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0, 5.0])
    worst = evaluate(KnownAnswers(), loader, classes=CLASSES, mistakes=3).worst
    assert [mistake.index for mistake in worst] == [1, 3, 5]
    assert evaluate(KnownAnswers(), loader, classes=CLASSES).worst == ()


def test_top_five_is_at_most_all_classes() -> None:
    class Ranked(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return torch.arange(3.0).expand(len(images), 3)

    loader = images_of([0, 0], [0, 2], [1.0, 1.0])
    assert evaluate(Ranked(), loader, classes=3).top5 == 100.0


def made_up(confusion: list[list[int]]) -> Evaluation:
    return Evaluation.from_json(
        {"images": 1, "top1": 1.0, "top5": 1.0, "loss": 1.0, "confusion": confusion, "per_class": [None, 50.0, 1]}
    )


def test_the_most_frequent_confusions_are_named() -> None:
    assert made_up([[5, 2, 0], [4, 5, 1], [0, 0, 5]]).confused_pairs(most=2) == [(1, 0, 4), (0, 1, 2)]
    assert made_up([[1, 0], [0, 1]]).confused_pairs(most=3) == []


def test_an_evaluation_is_read_as_it_was_written() -> None:
    found = evaluate(KnownAnswers(), images_of([1] * 4, [0, 0, 1, 1], [1.0] * 4), classes=CLASSES, mistakes=2)
    assert len(found.worst) == 2
    for one in (found, made_up([[1, 2], [3, 4]])):
        assert Evaluation.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert "worst" not in made_up([[1]]).to_json()
