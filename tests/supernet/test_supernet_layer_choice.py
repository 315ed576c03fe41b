"""Choices between parts that need more than an image."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from archloom.core.errors import SettingError
from archloom.supernet import Gate, LayerChoice

X = torch.ones(2, 3, 1, 1)


class Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor, more: float = 1.0) -> Tensor:
        return x * self.factor * more


def layer_choice(*options: str) -> LayerChoice:
    return LayerChoice("d", options, lambda option: Times(float(option)))


def value(result: Tensor | None) -> float:
    assert result is not None
    return float(result.unique())


def test_a_path_runs_one_option_with_what_it_needs() -> None:
    assert value(layer_choice("3", "5")(X, {"d": Gate(index=1)})) == 5
    assert value(layer_choice("3", "5")(X, {"d": Gate(index=1)}, 2.0)) == 10
    assert value(layer_choice("5")(X, None)) == 5


def test_a_warm_up_averages_and_zero_counts_as_zero() -> None:
    assert value(layer_choice("3", "5")(X, {"d": Gate(weights=torch.tensor([0.5, 0.5]))})) == 4
    assert value(layer_choice("3", "zero")(X, {"d": Gate(weights=torch.tensor([0.5, 0.5]))})) == 1.5
    assert layer_choice("3", "zero")(X, {"d": Gate(index=1)}) is None
    assert layer_choice("zero")(X, None) is None
    assert layer_choice("3", "5")(X, {"d": Gate()}) is None


def test_weights_may_differ_between_images() -> None:
    result = layer_choice("1", "3")(X, {"d": Gate(weights=torch.tensor([[1.0, 0.0], [0.5, 0.5]]))})
    assert result is not None
    assert result[:, 0, 0, 0].tolist() == [1.0, 2.0]


def test_a_hard_sample_carries_gradient_and_an_offset_is_added() -> None:
    weights = torch.tensor([0.0, 1.0], requires_grad=True)
    gate = Gate(index=1, weights=weights, offset=weights.sum() - 1)
    result = layer_choice("3", "5")(X, {"d": gate})
    assert result is not None
    assert value(result.detach()) == 5
    (gradient,) = torch.autograd.grad(result.sum(), weights)
    assert gradient.tolist() == [6.0, 36.0]
    assert layer_choice("3", "zero")(X, {"d": gate}) is gate.offset


def test_a_mixture_runs_several_options() -> None:
    assert layer_choice("3", "5").runs_several({"d": Gate(weights=torch.ones(2))})
    assert not layer_choice("3", "5").runs_several({"d": Gate(index=0)})
    assert not layer_choice("3").runs_several(None)


def test_images_cannot_take_different_paths() -> None:
    with pytest.raises(SettingError, match=r"^the images of a batch cannot take different paths at 'd'"):
        layer_choice("3", "5")(X, {"d": Gate(index=torch.tensor([0, 1]))})
