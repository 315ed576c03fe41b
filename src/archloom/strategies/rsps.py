"""RSPS: train uniformly drawn single paths, then take the best of many by shared weights (Li & Talwalkar, 2019)."""

from __future__ import annotations

import torch

from archloom.errors import require
from archloom.spaces import Architecture, SearchSpace
from archloom.strategies.base import Evaluate, Metrics, OneShot, SearchBatch, metrics
from archloom.supernets import SharedWeights, path_gates


class Rsps(OneShot):
    """Random search with parameter sharing."""

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        candidates: int = 100,  # architectures compared by shared weights at the end
        candidates_each_epoch: int = 10,  # and at the end of every epoch
    ) -> None:
        super().__init__(space, generator)
        require(
            {
                f"strategy.candidates must be at least 1, got {candidates}": candidates >= 1,
                f"strategy.candidates_each_epoch must be at least 1, got {candidates_each_epoch}": (
                    candidates_each_epoch >= 1
                ),
            }
        )
        self._candidates, self._candidates_each_epoch = candidates, candidates_each_epoch

    def step(self, weights: SharedWeights, batch: SearchBatch) -> Metrics:
        path = path_gates(self.space, self.space.sample(self.python_random()))
        return metrics(weights.fit(batch.train, path))

    def best(self, evaluate: Evaluate, *, final: bool = True) -> Architecture:
        rng = self.python_random()
        count = self._candidates if final else self._candidates_each_epoch
        return max((self.space.sample(rng) for _ in range(count)), key=evaluate)
