"""Random search: score uniformly sampled architectures; the baseline of every other strategy."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
from annotated_doc import Doc

from archloom.core.errors import SettingError, require
from archloom.objectives.target import Target
from archloom.spaces import Architecture, SearchSpace
from archloom.strategies.base import BlackBox, StrategyFindings, Trial


class RandomSearch(BlackBox):
    """Sample and score. With a target or a limit, sample again before scoring if the cost does not meet it."""

    stateful: ClassVar[tuple[str, ...]] = ("samples", "accepted")
    former_names: ClassVar[Mapping[str, str]] = {"samples": "drawn"}

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        window: Annotated[
            float | None, Doc("largest distance from the target, in its unit; left out: its tolerance")
        ] = None,
        most_draws: Annotated[int, Doc("samples per trial before the search fails")] = 100_000,
    ) -> None:
        super().__init__(space, generator)
        require(
            {
                f"strategy.window must be above 0, got {window}": window is None or window > 0,
                f"strategy.most_draws must be at least 1, got {most_draws}": most_draws >= 1,
            }
        )
        self._window, self._most_draws = window, most_draws
        self.samples, self.accepted = 0, 0  # for the target

    def ask(self, number: int) -> Trial:
        """Return a trial sampled uniformly."""
        rng = self.python_random()
        return Trial(number, self.space.sample(rng) if self.target is None else self._sample_near(self.target, rng))

    def _sample_near(self, target: Target, rng: random.Random) -> Architecture:
        """Return the first sampled architecture whose cost is near the target."""
        for _ in range(self._most_draws):
            self.samples += 1
            architecture = self.space.sample(rng)
            if self._accepts(target, architecture):
                self.accepted += 1
                return architecture
        if target.one_sided:
            raise SettingError(
                f"none of {self._most_draws:,} sampled architectures costs at most limit.value {target.value:g} "
                f"{target.source.unit}, and {self.accepted:,} of {self.samples:,} at all; raise the limit or "
                "strategy.most_draws"
            )
        raise SettingError(
            f"none of {self._most_draws:,} sampled architectures costs near target.value {target.value:g} "
            f"{target.source.unit}, and {self.accepted:,} of {self.samples:,} at all; widen strategy.window or "
            "set a target that more architectures meet"
        )

    def _accepts(self, target: Target, architecture: Architecture) -> bool:
        if self._window is None or target.one_sided:
            return target.is_met_by(architecture)
        return abs(target.cost(architecture) - target.value) <= self._window

    def findings(self) -> StrategyFindings:
        """Return how many samples met the target."""
        if self.target is None or not self.samples:
            return StrategyFindings()
        acceptance = {"drawn": self.samples, "accepted": self.accepted, "rate": self.accepted / self.samples}
        return StrategyFindings(others={"acceptance": acceptance})
