"""RSPS: train uniformly sampled paths, then choose the best of many by shared weights (Li & Talwalkar, 2019)."""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_doc import Doc

from archloom.spaces import Architecture, SearchSpace
from archloom.strategies.base import Evaluate, Metrics, OneShot, SearchBatch, metrics
from archloom.strategies.candidates import Candidates
from archloom.supernet import SharedWeights, path_gates


class Rsps(OneShot):
    """Random search with parameter sharing."""

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        candidates: Annotated[int, Doc("architectures compared by shared weights at the end")] = 100,
        candidates_each_epoch: Annotated[int, Doc("and at the end of every epoch")] = 10,
    ) -> None:
        super().__init__(space, generator)
        self._candidates = Candidates(candidates, candidates_each_epoch)

    def step(self, weights: SharedWeights, batch: SearchBatch) -> Metrics:
        """Update the weights along a path sampled uniformly."""
        path = path_gates(self.space, self.space.sample(self.python_random()))
        return metrics(weights.fit(batch.train, path))

    def best(self, evaluate: Evaluate, *, final: bool = True) -> Architecture:
        """Return the best of many sampled architectures under the shared weights."""
        rng = self.python_random()
        return self._candidates.best(lambda: self.space.sample(rng), evaluate, final=final)
