"""The posterior phase: parallel chains of the architecture parameters under frozen weights, until they agree.

A search moves weights and architecture parameters together, and its one chain does not show whether it has mixed.
Here the weights are frozen, so there is one posterior to draw from: that of the architecture parameters given these
weights. Chains start apart. Probabilities are stated once R-hat shows that the chains have forgotten their starts.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from annotated_doc import Doc

from archloom.core.errors import SettingError, require
from archloom.data.loader import Batch
from archloom.policies import Chain
from archloom.policies.posterior import Posterior
from archloom.strategies.posterior_strategy import PosteriorStrategy
from archloom.supernet import SharedWeights

ADAPTED = 0.25  # share of the most draws in which chains learn their curvature
CHECKED_EVERY = 5  # draws of each chain

Progress = Callable[[int, float | None], None]
"""Receives the draws of each chain so far, and R-hat where it was measured."""


@dataclass(frozen=True, kw_only=True)
class PosteriorPhaseSettings:
    """Whether a search ends with parallel chains, how long they run, and when they have converged."""

    phase: Annotated[
        bool, Doc("draw from parallel chains under frozen weights at the end of a search; needs strategy gibbs")
    ] = False
    most_time: Annotated[float, Doc("of the phase, relative to the training of the shared weights")] = 1.0
    chains: Annotated[int, Doc("parallel chains")] = 4
    draws: Annotated[int, Doc("draws of each chain at most")] = 200
    r_hat: Annotated[float, Doc("chains have converged below this R-hat")] = 1.05
    effective_draws: Annotated[
        float, Doc("and with at least so many effective draws of the logit that mixed worst")
    ] = 50.0

    def __post_init__(self) -> None:
        require(
            {
                f"posterior.most_time must be above 0, got {self.most_time}": self.most_time > 0,
                f"posterior.chains must be at least 2, got {self.chains}": self.chains >= 2,
                f"posterior.draws must be at least 20, got {self.draws}": self.draws >= 20,
                f"posterior.r_hat must be above 1, got {self.r_hat}": self.r_hat > 1,
                f"posterior.effective_draws must be above 0, got {self.effective_draws}": self.effective_draws > 0,
            }
        )

    def check(self, strategy: object) -> None:
        """Raise a SettingError if a search is to end with chains that it cannot run."""
        draws = isinstance(strategy, PosteriorStrategy) and strategy.draws_posterior
        has_arviz = importlib.util.find_spec("arviz_stats") is not None
        require(
            {
                "posterior.phase needs a strategy that draws from a posterior: use strategy gibbs with "
                "strategy.logits.update sample": draws or not self.phase,
                "posterior.phase measures R-hat with ArviZ; install archloom[chains]": has_arviz or not self.phase,
            }
        )


class PosteriorPhase:
    """Runs parallel chains of a strategy."""

    def __init__(self, strategy: PosteriorStrategy, settings: PosteriorPhaseSettings) -> None:
        self._strategy, self._settings = strategy, settings

    def run(
        self,
        weights: SharedWeights,
        batches: Iterator[Sequence[Batch]],
        *,
        progress: Progress = lambda draws, r_hat: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Posterior:
        """Return the posterior given the weights: converged, or as far as the draws or the time went.

        Args:
            weights: the shared weights, which are not updated.
            batches: the validation batches of one draw after another; all chains see the same.
            progress: called after every check.
            stop: asked after every draw; once true, the draws so far are the result.

        Raises:
            SettingError: ArviZ, which measures R-hat, is not installed.
        """
        settings, frozen = self._settings, weights.frozen()
        chains = self._strategy.start_chains(settings.chains)
        adapted, found = max(1, round(ADAPTED * settings.draws)), None
        for number, batch in zip(range(settings.draws), batches, strict=False):
            for chain in chains:
                chain.draw(frozen, batch)
            done, stopped = number + 1 - adapted, stop()  # draws since the curvature is frozen
            if done == 0:
                for chain in chains:
                    chain.freeze_curvature()
            if done > 0 and (done % CHECKED_EVERY == 0 or number + 1 == settings.draws or stopped):
                found = self._summarize([chain.chain for chain in chains], done)
                progress(number + 1, None if found.mixing is None else found.mixing.r_hat)
            if stopped or (found is not None and self.has_converged(found)):
                break
        return found or self._summarize([chain.chain for chain in chains], 1)

    def has_converged(self, posterior: Posterior) -> bool:
        """Return whether chains agree well enough to state probabilities."""
        mixing = posterior.mixing
        if mixing is None:
            return False
        return mixing.r_hat < self._settings.r_hat and mixing.effective_draws >= self._settings.effective_draws

    def _summarize(self, chains: Sequence[Chain], draws: int) -> Posterior:
        """Return the posterior of the later half of the draws since the curvature is frozen."""
        share = max(1, (draws + 1) // 2) / len(chains[0])
        found = self._strategy.summarize_chains(chains, burn_in=1 - share)
        if found.mixing is None and draws >= 4 * CHECKED_EVERY:
            raise SettingError("the posterior phase measures R-hat with ArviZ; install archloom[chains]")
        return replace(found, given_weights=True)
