"""Short trainings of single architectures: how a black-box search scores what no table covers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from archloom.core.settings import Settings
from archloom.data.loader import Batches
from archloom.families import build_network
from archloom.searches.studies import Scored
from archloom.spaces import Architecture, SearchSpace
from archloom.supernet import Only, SharedWeights, WeightSettings
from archloom.tasks import CLASSIFICATION, NetworkShape, Task


def build_standalone(
    space: SearchSpace,
    architecture: Architecture,
    *,
    seed: int,
    place: Callable[[nn.Module], nn.Module],
    network: Settings,
    weights: WeightSettings,
    shape: NetworkShape | None = None,
    task: Task = CLASSIFICATION,
) -> SharedWeights:
    """Return a network of one architecture with its own weights, moved by `place` to where it runs.

    The first weights depend only on the seed: architectures begin alike, and scores can be reproduced.
    """
    with seeded(seed):
        made = build_network(space, Only(architecture), shape, **network)
    return SharedWeights(place(made), weights, noise_seed=seed, task=task, one_path=True)


def train_epochs(weights: SharedWeights, train: Batches, *, epochs: int) -> Iterator[int]:
    """Fit a network for so many epochs, its learning rate on a cosine; yield after each how many are done."""
    weights.train()
    for epoch in range(epochs):
        weights.set_progress(epoch / epochs)
        for batch in train.epoch(epoch):
            weights.fit(batch, {})
        yield epoch + 1


class StandaloneScore:
    """Validation score, in percent, of an architecture trained from scratch under a budget of epochs.

    With `every_epoch` there is a score after each epoch, which costs a pass over all validation images.
    """

    def __init__(
        self,
        begin: Callable[[Architecture], SharedWeights],
        *,
        train: Batches,
        valid: Batches,
        epochs: int,
        every_epoch: bool = True,
    ) -> None:
        self._begin, self._train, self._valid = begin, train, valid
        self.epochs, self._every_epoch = epochs, every_epoch

    def __call__(self, architecture: Architecture) -> Iterator[Scored]:
        weights = self._begin(architecture)
        for done in train_epochs(weights, self._train, epochs=self.epochs):
            if self._every_epoch or done == self.epochs:
                yield Scored(done, 100 * weights.deployed_score(self._valid.epoch(0)))


class seeded:  # noqa: N801 - reads as a word: `with seeded(3):`
    """Seed torch's global generator, from which modules draw their first weights, and restore it on exit."""

    def __init__(self, seed: int) -> None:
        self._fork = torch.random.fork_rng(devices=[])
        self._seed = seed

    def __enter__(self) -> None:
        self._fork.__enter__()
        torch.manual_seed(self._seed)

    def __exit__(self, *error: Any) -> None:
        self._fork.__exit__(*error)
