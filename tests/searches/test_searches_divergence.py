"""Divergence that stays finite is noticed; healthy training is not disturbed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import archloom
from archloom.core.errors import DivergedError
from archloom.searches.divergence import (
    guessing_loss,
    refuse_bad_probabilities,
    refuse_high_loss,
    refuse_huge_weights,
)

TINY: dict[str, Any] = {
    "data": {"train_images": 64, "valid_images": 64},
    "search": {"batch_size": 32, "evaluation_images": 32, "random_baseline_samples": 2, "finalist_steps": 0},
    "network": {"channels": 4},
}
ADVICE = {"epoch": 2, "remedy": "do this"}


def test_guessing_has_the_loss_of_the_classes() -> None:
    assert guessing_loss(10) == pytest.approx(math.log(10))


def test_a_loss_far_above_guessing_is_refused() -> None:
    limit = 10 * math.log(10) + 10
    refuse_high_loss(limit, classes=10, **ADVICE)
    refuse_high_loss(None, classes=10, **ADVICE)
    with pytest.raises(DivergedError) as caught:
        refuse_high_loss(limit + 0.1, classes=10, **ADVICE)
    assert str(caught.value) == (
        "the training diverged: the mean loss of epoch 3 is 33.1, and guessing has 2.30 (10 classes); do this"
    )


@pytest.mark.parametrize("bad", [1.1e6, -1.1e6, math.inf, math.nan])
def test_weights_beyond_reason_are_refused(bad: float) -> None:
    good = [torch.tensor([1e6, -1e6]), torch.tensor([5]), torch.zeros(0)]
    refuse_huge_weights(good, **ADVICE)
    refuse_huge_weights([], **ADVICE)
    with pytest.raises(DivergedError, match=r"after epoch 3 a weight is .*, beyond 1e\+06; do this"):
        refuse_huge_weights([*good, torch.tensor([0.0, bad])], **ADVICE)


def test_probabilities_that_are_no_numbers_are_refused() -> None:
    refuse_bad_probabilities({"edge": [0.5, 0.5]}, **ADVICE)
    refuse_bad_probabilities(None, **ADVICE)
    with pytest.raises(DivergedError, match=r"the probabilities of decision 'edge' are nan, 0\.5; do this"):
        refuse_bad_probabilities({"node": [1.0], "edge": [math.nan, 0.5]}, **ADVICE)


def test_a_search_with_an_absurd_rate_stops_with_a_diagnosis(tmp_path: Path) -> None:
    settings = {**TINY, "weights": {"learning_rate": 300.0, "clip": 0.0}}
    with pytest.raises(DivergedError, match=r"lower weights\.learning_rate"):
        archloom.search("nb201_mini", "gdas", epochs=5, out=tmp_path / "run", settings=settings)


def test_a_retraining_with_an_absurd_rate_stops_with_a_diagnosis(tmp_path: Path) -> None:
    settings = {
        "space": {"name": "nb201_mini"},
        "training": {"epochs": 3},
        "network": {"channels": 4},
        "optimizer": {"learning_rate": 1e4, "clip": 0.0, "warmup_epochs": 0},
        "data": {"split": "random", "train_images": 128},
    }
    text = "|nor_conv_3x3~0|+|none~0|skip_connect~1|"
    with pytest.raises(DivergedError, match=r"a lower optimizer\.learning_rate"):
        archloom.retrain(text, recipe="nb201_12", data="digits", out=tmp_path / "run", settings=settings)


def test_a_result_that_learned_nothing_says_so_first(tmp_path: Path) -> None:
    settings = {**TINY, "weights": {"learning_rate": 1e-9}}
    result = archloom.search("nb201_mini", "gdas", epochs=1, out=tmp_path / "run", settings=settings)
    hardly, nothing = result.verdict.split(". ")[:2]
    assert hardly.startswith("The shared weights were hardly trained: 2 steps")
    assert nothing.startswith("The network has learned nothing: ")
