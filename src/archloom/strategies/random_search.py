"""Random search: architectures drawn uniformly and scored one by one; what every other strategy has to beat."""

from __future__ import annotations

import random
from typing import Annotated, ClassVar

import torch
from annotated_doc import Doc

from archloom.core.errors import SettingError, require
from archloom.objectives.target import Target
from archloom.spaces import Architecture, SearchSpace
from archloom.strategies.base import BlackBox, StrategyFindings, Trial


class RandomSearch(BlackBox):
    """Draw, score, forget. With a target, what costs too much or too little is drawn again before it is scored."""

    stateful: ClassVar[tuple[str, ...]] = ("drawn", "accepted")

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        window: Annotated[
            float | None, Doc("how far from the target a draw may be, in its unit; left out: its tolerance")
        ] = None,
        most_draws: Annotated[int, Doc("for one that is near enough; then the search gives up")] = 100_000,
    ) -> None:
        super().__init__(space, generator)
        require(
            {
                f"strategy.window must be above 0, got {window}": window is None or window > 0,
                f"strategy.most_draws must be at least 1, got {most_draws}": most_draws >= 1,
            }
        )
        self._window, self._most_draws = window, most_draws
        self.drawn, self.accepted = 0, 0  # for the target

    def ask(self, number: int) -> Trial:
        rng = self.python_random()
        return Trial(number, self.space.sample(rng) if self.target is None else self._near(self.target, rng))

    def _near(self, target: Target, rng: random.Random) -> Architecture:
        """The first one drawn whose cost is near the target."""
        for _ in range(self._most_draws):
            self.drawn += 1
            architecture = self.space.sample(rng)
            if self._accepts(target, architecture):
                self.accepted += 1
                return architecture
        raise SettingError(
            f"none of {self._most_draws:,} architectures drawn costs near target.value {target.value:g} "
            f"{target.source.unit}, and {self.accepted:,} of {self.drawn:,} since the start; widen strategy.window, or "
            "aim at what the space has more of"
        )

    def _accepts(self, target: Target, architecture: Architecture) -> bool:
        if self._window is None:
            return target.is_met_by(architecture)
        return abs(target.cost(architecture) - target.value) <= self._window

    def findings(self) -> StrategyFindings:
        if self.target is None or not self.drawn:
            return StrategyFindings()
        acceptance = {"drawn": self.drawn, "accepted": self.accepted, "rate": self.accepted / self.drawn}
        return StrategyFindings(others={"acceptance": acceptance})
