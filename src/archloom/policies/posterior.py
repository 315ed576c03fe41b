"""What draws from a posterior say of decisions and architectures, as values with one reader and one writer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from archloom.core.json_object import JsonObject, from_json_object, to_json_object
from archloom.spaces import Architecture


@dataclass(frozen=True)
class DecisionPosterior:
    """How often each option of a decision was the best one."""

    best: Mapping[str, float]  # the share of the draws, per option
    credible_set: tuple[str, ...]  # the fewest options with 95 % of the draws, the most frequent first
    entropy: float  # mean, of a draw's own probabilities

    @property
    def option(self) -> str:
        """Return the option that was the best most often."""
        return max(self.best, key=lambda option: self.best[option])

    @property
    def probability(self) -> float:
        """Return the probability that this option is the best."""
        return self.best[self.option]

    @property
    def alternatives(self) -> tuple[str, ...]:
        """Return the rest of the credible set, the most probable first."""
        return tuple(option for option in self.credible_set if option != self.option)


@dataclass(frozen=True)
class ArchitectureFrequency:
    """An architecture that draws decode to, and the share of the draws that do."""

    text: str
    architecture: Architecture
    frequency: float


@dataclass(frozen=True)
class Mixing:
    """How well chains mixed: effective sample sizes and R-hat of the logits."""

    chains: int
    draws: int  # of each chain
    effective_draws: float  # of the logit that mixed worst
    effective_draws_median: float
    r_hat: float  # of the logit that mixed worst
    r_hat_median: float


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """What the draws of one chain, or of several parallel ones, say after their burn-in."""

    draws: int
    different_architectures: int
    decisions: Mapping[str, DecisionPosterior]
    architectures: tuple[ArchitectureFrequency, ...]  # the most frequent ones
    burn_in: int = 0  # draws left out before these
    sampled: bool = True  # False: updates without noise, whose shares are no probabilities
    mixing: Mixing | None = None  # None where it was not measured
    runs: tuple[str, ...] = ()  # the folders of parallel chains
    excluded: tuple[str, ...] = ()  # options that cannot win, so shares cover the others only
    given_weights: bool = False  # of the architecture parameters given the shared weights, which were frozen

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the posterior that a record holds."""
        return from_json_object(cls, value)

    def to_json(self) -> JsonObject:
        """Return the posterior as JSON values."""
        return to_json_object(self)
