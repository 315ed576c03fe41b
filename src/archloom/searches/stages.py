"""The stages of a search: which stage an epoch belongs to, and where in the stage it is."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from archloom.spaces import SearchSpace
from archloom.strategies.base import Stage
from archloom.supernet import Resolve, SharedWeights

BuildWeights = Callable[[SearchSpace, Resolve, int], SharedWeights]
"""Builds the supernet of a stage, by its space, its resolve and its number, with weights of its own seed."""


@dataclass(frozen=True)
class StageEpoch:
    """An epoch within its stage."""

    stage: int  # from 0
    epoch: int  # of the stage, from 0
    epochs: int  # of the stage

    @property
    def start(self) -> float:
        """Return the share of the stage that is done when the epoch begins."""
        return self.epoch / self.epochs


class StagePlan:
    """The stages of a search, one after the other.

    Examples:
        >>> from archloom.searches.stages import StagePlan
        >>> from archloom.strategies.base import Stage
        >>> plan = StagePlan([Stage(2, "shallow"), Stage(3, "deep")])
        >>> plan.epochs, plan.at(2), plan.describe(1)
        (5, StageEpoch(stage=1, epoch=0, epochs=3), 'stage 2/2, deep')
    """

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = tuple(stages)
        self._starts = list(accumulate((stage.epochs for stage in self._stages), initial=0))

    @property
    def epochs(self) -> int:
        """Return the number of epochs of all stages."""
        return self._starts[-1]

    @property
    def is_single(self) -> bool:
        """Return whether the search has one stage, as most have."""
        return len(self._stages) == 1

    def epochs_of(self, number: int) -> int:
        """Return the number of epochs of one stage."""
        return self._stages[number].epochs

    def first_epoch(self, number: int) -> int:
        """Return the epoch that a stage begins with, counted over all stages."""
        return self._starts[number]

    def at(self, epoch: int) -> StageEpoch:
        """Return where an epoch, counted over all stages, lies; epochs after the end belong to the last stage."""
        number = min(bisect_right(self._starts, epoch), len(self._stages)) - 1
        return StageEpoch(number, epoch - self._starts[number], self._stages[number].epochs)

    def describe(self, number: int) -> str:
        """Return `stage 2/3, 11 cells`; '' where a search has one stage."""
        count = len(self._stages)
        return f"stage {number + 1}/{count}, {self._stages[number].name}" if count > 1 else ""
