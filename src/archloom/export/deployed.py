"""A trained model for users: images in, logits out; and the check that an exported form computes the same."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from archloom.core.errors import CheckpointError
from archloom.execution.checkpoint import digest
from archloom.retrainings.model_file import ModelCard, load_model

TOLERANCE = 1e-4  # relative: two runtimes add up in another order
BATCHES = (1, 3)  # neither is what a graph is traced with
INPUT, OUTPUT = "images", "logits"

Predict = Callable[[Tensor], Tensor]


class Deployed(nn.Module):
    """A network that normalises for itself: it takes images as they are, bytes scaled to 0..1, and gives logits.

    Users of an exported model only have pictures, so mean and deviation of the training images are part of it.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, card: ModelCard, network: nn.Module) -> None:
        super().__init__()
        self.card = card
        self.network = network
        self.register_buffer("mean", _per_channel(card.mean))
        self.register_buffer("std", _per_channel(card.std))

    @classmethod
    def load(cls, path: Path, *, plugins: bool = False) -> Deployed:
        """Return the model of a file, in evaluation mode and without gradients."""
        return cls(*load_model(path, plugins=plugins)).eval().requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of images in 0..1."""
        logits: Tensor = self.network((images - self.mean) / self.std)
        return logits

    def digest(self) -> str:
        """Return a digest of the card and the weights; an exported form with the same one is of this model."""
        weights = {name: tensor.cpu().contiguous() for name, tensor in self.network.state_dict().items()}
        return digest(json.dumps(asdict(self.card), default=list), weights)

    def example(self, images: int, *, seed: int = 0) -> Tensor:
        """Return random images of the right shape."""
        return torch.rand(images, *self.card.image_shape, generator=torch.Generator().manual_seed(seed))


def measure_difference(model: Deployed, predict: Predict, *, what: str, tolerance: float = TOLERANCE) -> float:
    """Return the largest difference of an exported form's logits; raise CheckpointError above the tolerance."""
    largest = 0.0
    for expected, found in _compare_batches(model, predict):
        if found.shape != expected.shape:
            raise CheckpointError(
                f"the {what} model gives logits {list(found.shape)}, not {list(expected.shape)}; nothing written"
            )
        difference = float((found - expected).abs().max())
        size = float(expected.abs().max())
        if not difference <= tolerance * size:  # so that NaN is refused, too
            raise CheckpointError(
                f"the {what} model differs from torch by {difference:.1e} in logits of size {size:.1e}, "
                f"more than {tolerance:g} of it; nothing written"
            )
        largest = max(largest, difference)
    return largest


def read_version() -> str:
    """Return the version of archloom, which exported files record."""
    try:
        return importlib.metadata.version("archloom")
    except importlib.metadata.PackageNotFoundError:  # run from a source folder
        return "(not installed)"


def _compare_batches(model: Deployed, predict: Predict) -> Iterator[tuple[Tensor, Tensor]]:
    for count in BATCHES:
        images = model.example(count, seed=count)
        with torch.no_grad():
            yield model(images), predict(images)


def _per_channel(values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32).view(-1, 1, 1)
