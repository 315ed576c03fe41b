"""The score of single paths under the shared weights: what a search compares architectures by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from archloom.data.loader import Batch, Batches
from archloom.spaces import Architecture, SearchSpace
from archloom.supernet import Gates, SharedWeights, path_gates


class SharedScore:
    """Evaluates single paths under the shared weights, always on the same validation examples."""

    def __init__(
        self,
        space: SearchSpace,
        weights: SharedWeights,
        images: Batches,
        *,
        gates: Callable[[Architecture], Gates] | None = None,  # of a path; left out: those of the space
    ) -> None:
        self._gates, self._weights, self._images = gates or partial(path_gates, space), weights, images
        self._batches: list[Batch] = []

    @property
    def batches(self) -> Sequence[Batch]:
        """Return the validation batches, read once and kept."""
        self._batches = self._batches or list(self._images.epoch(0))
        return self._batches

    @property
    def class_counts(self) -> list[int]:
        """Return how many of the examples each class has, without classes that have none."""
        counts = torch.bincount(torch.cat([batch.labels for batch in self.batches]))
        return [int(count) for count in counts.tolist() if count]

    def __call__(self, architecture: Architecture) -> float:
        gates = self._gates(architecture)
        scores = ((float(self._weights.score(batch, gates)), len(batch)) for batch in self.batches)
        return self._weights.metric.mean(scores)

    def likelihood(self, architecture: Architecture) -> float:
        """Return minus the mean loss: the objective of strategies that follow gradients."""
        gates = self._gates(architecture)
        with torch.no_grad():
            lost = sum(float(self._weights.loss(batch, gates)) * len(batch) for batch in self.batches)
        return -lost / sum(len(batch) for batch in self.batches)
