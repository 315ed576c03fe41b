"""What is exported: normalisation inside, and a check that notices differences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from archloom.core.errors import CheckpointError
from archloom.export.deployed import Deployed, measure_difference

Make = Callable[..., Deployed]


@pytest.fixture
def model(make: Make) -> Deployed:
    return make(nodes=2, cells_per_stage=1, architecture="|nor_conv_3x3~0|")


def test_images_are_normalised_inside(model: Deployed) -> None:
    images = torch.rand(2, 3, 8, 8)
    by_hand = images.clone()
    for channel, (mean, std) in enumerate(zip(model.card.mean, model.card.std, strict=True)):
        by_hand[:, channel] = (images[:, channel] - mean) / std
    assert torch.allclose(model(images), model.network(by_hand), atol=1e-6)
    assert not torch.allclose(model(images), model.network(images), atol=1e-2)


def test_a_file_is_loaded_ready_to_be_asked(model_file: Path) -> None:
    model = Deployed.load(model_file)
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert model(model.example(2)).shape == (2, 3)


def test_an_equal_form_differs_by_nothing(model: Deployed) -> None:
    assert measure_difference(model, model, what="same") == 0


def test_the_largest_difference_of_all_batches_is_told(model: Deployed) -> None:
    found = measure_difference(model, lambda images: model(images) + 1e-4 * len(images), what="other", tolerance=1)
    assert found == pytest.approx(3e-4, rel=0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda logits: logits * 1.001,
        lambda logits: -logits,
        lambda logits: logits * float("nan"),
        lambda logits: logits[:, :2],
        lambda logits: logits if len(logits) == 1 else logits.flip(0),
    ],
    ids=["scale", "sign", "nan", "shape", "order"],
)
def test_a_form_that_computes_something_else_is_refused(model: Deployed, wrong: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(CheckpointError, match=r"the other model .* nothing written"):
        measure_difference(model, lambda images: wrong(model(images)), what="other")
