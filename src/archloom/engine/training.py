"""Train one architecture by itself for a short while: how black-box search scores what no table knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from archloom.data.loader import Batch, Loader
from archloom.networks import build_network
from archloom.spaces import Architecture, SearchSpace
from archloom.supernets import Only, SharedWeights


def train_standalone(weights: SharedWeights, train: Loader, *, epochs: int) -> None:
    """Fit a network of one architecture for so many epochs, its learning rate on the cosine."""
    weights.network.train()
    for epoch in range(epochs):
        weights.set_progress(epoch / epochs)
        for batch in train.epoch(epoch):
            weights.fit(batch, {})


def accuracy_of(network: nn.Module, batches: Iterator[Batch]) -> float:
    """Share of images that a network in evaluation mode classifies rightly."""
    network.eval()
    right = seen = 0
    with torch.no_grad():
        for batch in batches:
            right += int((network(batch.images).argmax(dim=1) == batch.labels).sum())
            seen += len(batch)
    network.train()
    return right / seen


class StandaloneScore:
    """Validation accuracy, in percent, of an architecture trained from scratch under a budget of epochs.

    The start of the weights depends on the seed and on nothing else, so that a score can be had again.
    """

    def __init__(
        self,
        space: SearchSpace,
        *,
        train: Loader,
        valid: Loader,
        epochs: int,
        seed: int,
        classes: int,
        colours: int,
        device: torch.device,
        network: dict[str, Any],
        weights: dict[str, Any],
    ) -> None:
        self._space, self._train, self._valid, self._epochs, self._seed = space, train, valid, epochs, seed
        self._shape = {"classes": classes, "colours": colours}
        self._device, self._network, self._weights = device, network, weights

    def __call__(self, architecture: Architecture) -> float:
        network = self.fit(architecture)
        return 100 * accuracy_of(network, self._valid.epoch(0))

    def fit(self, architecture: Architecture) -> nn.Module:
        with seeded(self._seed):
            network = build_network(self._space, Only(architecture), **self._shape, **self._network)
        weights = SharedWeights(network.to(self._device), **self._weights)
        train_standalone(weights, self._train, epochs=self._epochs)
        return network


class seeded:  # noqa: N801 - reads as a word: `with seeded(3):`
    """Modules draw their first weights from torch's global generator: lend it a seed, and give it back as it was."""

    def __init__(self, seed: int) -> None:
        self._fork = torch.random.fork_rng(devices=[])
        self._seed = seed

    def __enter__(self) -> None:
        self._fork.__enter__()
        torch.manual_seed(self._seed)

    def __exit__(self, *error: Any) -> None:
        self._fork.__exit__(*error)
