"""Image classification: the score is the share of correct images, and guessing is named."""

from __future__ import annotations

import pytest
import torch

from archloom.tasks import ACCURACY, CLASSIFICATION, ImageShape
from archloom.tasks.classification import guessing_accuracy
from archloom.testing import make_tiny_data

LOGITS = torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 0.0], [0.0, 5.0]])
LABELS = torch.tensor([0, 0, 0, 1])


def test_loss_and_score_are_those_of_a_classifier() -> None:
    assert float(CLASSIFICATION.score(LOGITS, LABELS)) == 0.75
    assert CLASSIFICATION.sum_scores(LOGITS, LABELS) == 3
    assert CLASSIFICATION.score_of_sum(3, 4) == 0.75
    assert CLASSIFICATION.score_examples(LOGITS, LABELS, columns=1).tolist() == [True, False, True, True]
    plain = torch.nn.functional.cross_entropy(LOGITS, LABELS, label_smoothing=0.1)
    assert torch.equal(CLASSIFICATION.loss(LOGITS, LABELS, label_smoothing=0.1), plain)
    assert CLASSIFICATION.shape_of(make_tiny_data()) == ImageShape(classes=3, colours=3)


def test_an_accuracy_is_printed_in_percent_and_averaged_by_images() -> None:
    assert ACCURACY.format(0.9312) == "93.1 %"
    assert ACCURACY.to_value(0.5) == 50.0 and ACCURACY.to_figure(0.5) == 0.5
    assert ACCURACY.mean([(1.0, 3), (0.0, 1)]) == 0.75
    assert (ACCURACY.label, ACCURACY.better) == ("accuracy, %", "higher")


def test_guessing_has_the_accuracy_of_the_most_frequent_class() -> None:
    assert guessing_accuracy([3, 5, 2]) == 0.5


@pytest.mark.parametrize(("accuracy", "warned"), [(0.10, True), (0.159, True), (0.161, False), (0.9, False)])
def test_an_accuracy_of_guessing_is_said(accuracy: float, warned: bool) -> None:
    said = CLASSIFICATION.chance_sentence(accuracy, [10] * 10)  # two deviations are 6 points
    assert bool(said) is warned
    if warned:
        assert said.startswith("The network has learned nothing: its accuracy, ") and "10.0 %." in said


def test_no_images_say_nothing() -> None:
    assert CLASSIFICATION.chance_sentence(0.0, []) == ""
