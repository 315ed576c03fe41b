"""The last step of several one-shot strategies: sample many architectures, choose the best by shared weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from archloom.core.errors import require
from archloom.spaces import Architecture
from archloom.strategies.base import Evaluate


@dataclass(frozen=True)
class Candidates:
    """The number of candidates at the end of a search and after every epoch."""

    at_end: int
    each_epoch: int

    def __post_init__(self) -> None:
        require(
            {
                f"strategy.candidates must be at least 1, got {self.at_end}": self.at_end >= 1,
                f"strategy.candidates_each_epoch must be at least 1, got {self.each_epoch}": self.each_epoch >= 1,
            }
        )

    def best(self, sample: Callable[[], Architecture], evaluate: Evaluate, *, final: bool) -> Architecture:
        """Return the best of the sampled architectures; the first one wins a tie."""
        return max((sample() for _ in range(self.at_end if final else self.each_epoch)), key=evaluate)
