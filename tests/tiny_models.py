"""Tiny models with weights that are not those of a fresh network, of any space."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from archloom.export.deployed import Deployed
from archloom.retrainings.model_file import ModelCard, ModelDetails, save_model
from archloom.searches.short_training import seeded

Make = Callable[..., Deployed]


def make_model(
    space: str = "nb201",
    *,
    shape: tuple[int, int, int] = (3, 8, 8),
    classes: tuple[str, ...] = ("cat", "dog", "fish"),
    network: dict[str, Any] | None = None,
    architecture: dict[str, str] | str | None = None,
    seed: int = 0,
    side: int = 0,
    **settings: Any,
) -> Deployed:
    card = ModelCard(
        space={"name": space, **settings},
        architecture={},
        network={"channels": 4} if network is None else network,
        classes=classes,
        image_shape=shape,
        side=side,
        mean=tuple(0.4 + 0.1 * channel for channel in range(shape[0])),
        std=tuple(0.2 + 0.1 * channel for channel in range(shape[0])),
        details=ModelDetails(test_score=91.236),
    )
    home = card.search_space()
    if isinstance(architecture, str):
        architecture = dict(home.parse(architecture))
    card = replace(card, architecture=architecture or dict(home.sample(random.Random(seed))))
    with seeded(seed):
        made = card.build()
        with torch.no_grad():
            for name, value in made.state_dict().items():  # scales, shifts and statistics all matter
                if value.is_floating_point():
                    value.mul_(1 + 0.2 * torch.rand_like(value)).add_(0.1 * torch.rand_like(value))
                assert name
    return Deployed(card, made).eval().requires_grad_(False)


@pytest.fixture(scope="session")
def make() -> Make:
    return make_model


@pytest.fixture(scope="session")
def in_onnx(make: Make) -> tuple[Deployed, bytes]:
    """A model, and what its ONNX file holds; made once, since tracing takes seconds."""
    for name in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(name)
    from archloom.export.onnx import onnx_bytes

    model = make(nodes=2, cells_per_stage=1, architecture="|nor_conv_3x3~0|", shape=(3, 8, 6))
    return model, onnx_bytes(model)


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    """A model as a run leaves it: one cell per stage, two nodes."""
    model = make_model(nodes=2, cells_per_stage=1, architecture="|nor_conv_3x3~0|")
    path = tmp_path / "run" / "best.safetensors"
    save_model(path, model.card, model.network.state_dict())
    return path
