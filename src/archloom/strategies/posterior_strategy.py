"""What a strategy offers that keeps draws from a posterior: its chain, and parallel chains under frozen weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from archloom.data.loader import Batch
from archloom.policies import Chain
from archloom.policies.posterior import Posterior
from archloom.supernet import SharedWeights


class ArchitectureChain(Protocol):
    """One of several parallel chains of architecture parameters under frozen weights."""

    chain: Chain

    def draw(self, weights: SharedWeights, batches: Sequence[Batch]) -> None:
        """Add one draw, on validation batches."""

    def freeze_curvature(self) -> None:
        """Adapt no more."""


@runtime_checkable
class PosteriorStrategy(Protocol):
    """A strategy that keeps its draws from a posterior."""

    chain: Chain

    @property
    def draws_posterior(self) -> bool:
        """Return whether updates have the noise that makes them draws."""

    def summarize_chains(
        self, chains: Sequence[Chain], *, runs: Sequence[str] = (), burn_in: float | None = None
    ) -> Posterior:
        """Return what parallel chains say without a first share of each, by default that of the strategy's settings.

        `runs` names their folders.
        """

    def start_chains(self, count: int) -> Sequence[ArchitectureChain]:
        """Return parallel chains that start apart; the strategy itself does not change."""
