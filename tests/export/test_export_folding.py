"""Folding: the logits stay, the normalisations behind convolutions go; whatever else reads a convolution keeps them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.export import folding
from archloom.export.deployed import Deployed
from archloom.export.folding import fold_normalizations
from archloom.export.prediction import prepare_torch
from archloom.fast import use_kernels
from compiled_networks import Counter, needs_library

Make = Callable[..., Deployed]
SPACES: dict[str, dict[str, Any]] = {
    "nb201": {},
    "darts": {"cells": 3},
    "darts_gdas": {"cells_per_block": 1},
    "mobilenet_v3_like_32": {"network": {}, "shape": (3, 16, 16)},
    "nats_size": {"network": {}},
}


def count_normalizations(model: nn.Module) -> int:
    return sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())


@pytest.mark.parametrize("space", SPACES)
def test_a_folded_model_gives_the_same_logits(make: Make, space: str) -> None:
    model = make(space, **SPACES[space])
    before, state = count_normalizations(model), {name: value.clone() for name, value in model.state_dict().items()}
    folded = fold_normalizations(model)
    images = model.example(5, seed=3)
    assert count_normalizations(folded) < before / 2
    assert torch.allclose(folded(images), model(images), rtol=0, atol=1e-5 * float(model(images).abs().max()))
    assert torch.equal(folded(images).argmax(dim=1), model(images).argmax(dim=1))
    assert count_normalizations(model) == before
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


class Body(nn.Module):
    """A convolution and a normalisation with `between` of what is in between, and a head."""

    def __init__(self, *, bias: bool = False, affine: bool = True, eps: float = 1e-5) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, padding=1, bias=bias)
        self.normalization = nn.BatchNorm2d(4, affine=affine, eps=eps)
        self.head = nn.Linear(4, 3)

    def between(self, image: Tensor) -> Tensor:
        return image

    def join(self, raw: Tensor, normalized: Tensor) -> Tensor:
        return normalized

    def forward(self, images: Tensor) -> Tensor:
        raw = self.convolution(images)
        logits: Tensor = self.head(self.join(raw, self.normalization(self.between(raw))).relu().mean((2, 3)))
        return logits


class Residual(Body):
    def join(self, raw: Tensor, normalized: Tensor) -> Tensor:
        return raw + normalized


class InPlace(Body):
    def between(self, image: Tensor) -> Tensor:
        return image.relu_()


class Overwritten(Body):
    def between(self, image: Tensor) -> Tensor:
        image[:, :, 0] = 0
        return image


class Standardized(Body):
    def forward(self, images: Tensor) -> Tensor:
        raw = F.conv2d(images, self.convolution.weight - self.convolution.weight.mean(), padding=1)
        return self.head(self.normalization(raw).mean((2, 3)))  # type: ignore[no-any-return]


class Repeated(Body):
    def forward(self, images: Tensor) -> Tensor:
        first = self.normalization(self.convolution(images))
        return self.head((first + self.convolution(2 * images)).mean((2, 3)))  # type: ignore[no-any-return]


class Hidden(Body):
    """Its second reader is numpy, of which torch records nothing."""

    def join(self, raw: Tensor, normalized: Tensor) -> Tensor:
        return normalized + torch.from_numpy(raw.numpy() * 2)


class Own(nn.BatchNorm2d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input).relu()


class OwnNormalization(Body):
    def __init__(self) -> None:
        super().__init__()
        self.normalization = Own(4)


def deploy(make: Make, body: nn.Module) -> Deployed:
    """A model with this network, whose scales, shifts and statistics all matter."""
    card = make(nodes=2, cells_per_stage=1, architecture="|nor_conv_3x3~0|").card
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in body.state_dict().values():
            if value.is_floating_point():
                value.copy_(0.3 + torch.rand(value.shape, generator=generator))
    return Deployed(card, body).eval().requires_grad_(False)


@pytest.mark.parametrize(
    "body", [Body(), Body(bias=True), Body(affine=False), Body(eps=0.5)], ids=["plain", "bias", "no scale", "eps"]
)
def test_scale_shift_statistics_eps_and_bias_all_count(make: Make, body: Body) -> None:
    model = deploy(make, body)
    folded = fold_normalizations(model)
    assert count_normalizations(folded) == 0
    images = model.example(4, seed=1)
    assert torch.allclose(folded(images), model(images), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [Residual, InPlace, Overwritten, Standardized, Repeated, OwnNormalization])
def test_what_another_function_reads_or_changes_stays(
    make: Make, kind: type[Body], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "TOLERANCE", float("inf"))  # no check afterwards: the pairs themselves must be right
    model = deploy(make, kind())
    folded = fold_normalizations(model)
    assert count_normalizations(folded) == 1
    images = model.example(4, seed=1)
    assert torch.equal(folded(images), model(images))


def test_a_model_that_folding_would_change_is_returned_as_it_is(make: Make) -> None:
    model = deploy(make, Hidden())
    assert fold_normalizations(model) is model


def test_statistics_of_the_batch_cannot_be_folded(make: Make) -> None:
    body = Body()
    body.normalization = nn.BatchNorm2d(4, track_running_stats=False)
    assert count_normalizations(fold_normalizations(deploy(make, body))) == 1


def test_a_diverged_model_is_returned_as_it_is(make: Make) -> None:
    model = deploy(make, Body())
    model.network.head.bias.fill_(float("nan"))  # type: ignore[union-attr, operator]
    assert fold_normalizations(model) is model


@needs_library
@pytest.mark.parametrize("space", ["nb201", "darts"])
def test_many_pictures_run_compiled_and_few_folded(make: Make, space: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, counter = make(space, **SPACES[space]), Counter(monkeypatch)
    with torch.inference_mode():
        predict = prepare_torch(model)
        for images, runs in ((16, 1), (1, 1)):
            pictures = model.example(images)
            found = predict(pictures)
            assert counter.runs == runs
            with use_kernels("plain"):
                assert torch.allclose(found, model(pictures), rtol=1e-4, atol=1e-4)
