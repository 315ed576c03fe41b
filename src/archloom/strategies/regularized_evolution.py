"""Regularized evolution: the best of a few is changed in one place, and the oldest dies (Real et al., 2019)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_doc import Doc

from archloom.core.errors import require
from archloom.spaces import SearchSpace
from archloom.strategies.base import BlackBox, Preset, Trial


class RegularizedEvolution(BlackBox):
    """Age alone decides who leaves, so that an architecture stays in the family only by having good children."""

    stateful: ClassVar[tuple[str, ...]] = ("living",)
    presets: ClassVar[dict[str, Preset]] = {"paper": {"strategy": {"population": 10, "sample": 3}}}

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        population: Annotated[int, Doc("architectures alive; as many trials are drawn uniformly at first")] = 10,
        sample: Annotated[int, Doc("drawn from the living, with replacement; the best of them becomes the parent")] = 3,
    ) -> None:
        super().__init__(space, generator)
        require(
            {
                f"strategy.population must be at least 1, got {population}": population >= 1,
                f"strategy.sample must be at least 1, got {sample}": sample >= 1,
            }
        )
        self._population, self._sample = population, sample
        self.living: list[tuple[dict[str, str], float]] = []  # with their scores, the oldest first

    def ask(self, number: int) -> Trial:
        rng = self.python_random()
        if len(self.living) < self._population:
            return Trial(number, self.space.sample(rng))
        parent, _ = max(rng.choices(self.living, k=self._sample), key=lambda one: one[1])  # the first of equals
        return Trial(number, self.space.mutate(self.space.check(parent), rng))

    def tell(self, trial: Trial, score: float) -> None:
        self.living = [*self.living, (dict(trial.architecture), score)][-self._population :]
