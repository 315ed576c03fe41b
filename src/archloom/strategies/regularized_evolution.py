"""Regularized evolution: mutate the best of a few, and remove the oldest (Real et al., 2019)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_doc import Doc

from archloom.core.errors import require
from archloom.spaces import SearchSpace
from archloom.strategies.base import BlackBox, Preset, Trial


class RegularizedEvolution(BlackBox):
    """Age alone removes architectures: one persists only through good children."""

    stateful: ClassVar[tuple[str, ...]] = ("members",)
    former_names: ClassVar[dict[str, str]] = {"members": "living"}
    presets: ClassVar[dict[str, Preset]] = {"paper": {"strategy": {"population": 10, "sample": 3}}}

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        population: Annotated[
            int, Doc("architectures in the population; as many trials are sampled uniformly at first")
        ] = 10,
        sample: Annotated[
            int, Doc("architectures sampled from the population, with replacement; the best becomes the parent")
        ] = 3,
    ) -> None:
        super().__init__(space, generator)
        require(
            {
                f"strategy.population must be at least 1, got {population}": population >= 1,
                f"strategy.sample must be at least 1, got {sample}": sample >= 1,
            }
        )
        self._population, self._sample = population, sample
        self.members: list[tuple[dict[str, str], float]] = []  # with their scores, the oldest first

    def ask(self, number: int) -> Trial:
        """Return a random trial at first, later a mutation of a tournament's winner."""
        rng = self.python_random()
        if len(self.members) < self._population:
            return Trial(number, self.space.sample(rng))
        parent, _ = max(rng.choices(self.members, k=self._sample), key=lambda one: one[1])  # the first of equals
        return Trial(number, self.space.mutate(self.space.check(parent), rng))

    def tell(self, trial: Trial, score: float) -> None:
        """Add the trial to the population and remove the oldest one."""
        self.members = [*self.members, (dict(trial.architecture), score)][-self._population :]
