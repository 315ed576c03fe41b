"""The draws of a sampled policy, and their summary: the best options, how certain they are, the architectures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from archloom.core.state import StateDict
from archloom.policies.logits import Logits
from archloom.policies.posterior import ArchitectureFrequency, DecisionPosterior, Mixing, Posterior
from archloom.spaces import NONE, Architecture, Decision, Scores, SearchSpace

MOST_DRAWS = 4096  # kept; a longer chain keeps every second one, then every fourth
CREDIBLE = 0.95  # share of the draws that a credible set holds
MOST_ARCHITECTURES = 10  # listed by frequency
SMALLEST_SPREAD = 1e-6  # of a logit that moves
FEWEST_DRAWS = 8  # in a chain whose mixing can be measured


class Chain:
    """Logits in the order of their draws. A long chain is thinned evenly."""

    def __init__(self, size: int) -> None:
        self.draws = torch.empty(0, size)
        self.newest: Tensor | None = None  # a thinned chain may have left it out
        self._seen, self._every = 0, 1

    def append(self, values: Tensor) -> None:
        """Add a draw; thin the chain if it is too long."""
        self.newest = values.detach().to("cpu", torch.float32, copy=True).unsqueeze(0)
        if self._seen % self._every == 0:
            self.draws = torch.cat([self.draws, self.newest])
        self._seen += 1
        if len(self.draws) > MOST_DRAWS:
            self.draws, self._every = self.draws[::2].clone(), 2 * self._every

    def __len__(self) -> int:
        return len(self.draws)

    def last(self, share: float) -> Tensor:
        """Return the latest share of the draws; at least the newest, if there are any."""
        count = max(1, round(share * len(self.draws)))
        return self.draws[-count:] if count > 1 or self.newest is None else self.newest

    def state_dict(self) -> StateDict:
        """Return the draws and how they are thinned."""
        return {"draws": self.draws, "newest": self.newest, "seen": self._seen, "every": self._every}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        self.draws, self._seen, self._every = state["draws"], state["seen"], state["every"]
        self.newest = state.get("newest")


def mean_probabilities(policy: Logits, draws: Tensor) -> Scores:
    """Return the probability of every option, averaged over draws."""
    return {name: rows.softmax(dim=-1).mean(dim=0).tolist() for name, rows in policy.split(draws).items()}


def count_architectures(
    space: SearchSpace, policy: Logits, draws: Tensor, *, keep_none: bool | None = None
) -> list[tuple[Architecture, int]]:
    """Return the architectures that draws decode to with their counts, the most frequent first."""
    probabilities = {name: rows.softmax(dim=-1).tolist() for name, rows in policy.split(draws).items()}
    counts = Counter(
        space.decode({name: rows[number] for name, rows in probabilities.items()}, keep_none=keep_none)
        for number in range(len(draws))
    )
    return sorted(counts.items(), key=lambda item: (-item[1], space.format(item[0])))


def summarize_draws(
    space: SearchSpace,
    policy: Logits,
    chains: Sequence[Tensor],
    *,
    burn_in: int,
    sampled: bool,
    keep_none: bool | None = None,
    runs: Sequence[str] = (),
) -> Posterior:
    """Return what the draws [draws, logits] of chains say, per decision and for whole architectures.

    `burn_in` is the number of draws left out before these; `runs` names the folders of parallel chains.
    """
    draws = torch.cat(list(chains))
    rows = {name: part.softmax(dim=-1).tolist() for name, part in policy.split(draws).items()}
    counts = count_architectures(space, policy, draws, keep_none=keep_none)
    return Posterior(
        draws=len(draws),
        different_architectures=len(counts),
        decisions={d.name: _summarize_decision(space, d, rows[d.name], keep_none) for d in space.decisions},
        architectures=tuple(
            ArchitectureFrequency(space.format(architecture), architecture, count / len(draws))
            for architecture, count in counts[:MOST_ARCHITECTURES]
        ),
        burn_in=burn_in,
        sampled=sampled,
        mixing=measure_mixing(policy, chains),
        runs=tuple(runs),
        excluded=_excluded_options(space, keep_none),
    )


def _excluded_options(space: SearchSpace, keep_none: bool | None) -> tuple[str, ...]:
    """Return the options that cannot win, whatever their logits."""
    allowed = space.none_may_win if keep_none is None else keep_none
    return () if allowed or not any(NONE in decision.options for decision in space.decisions) else (NONE,)


def _summarize_decision(
    space: SearchSpace, decision: Decision, draws: Sequence[Sequence[float]], keep_none: bool | None
) -> DecisionPosterior:
    """Return how often each option is the best of those that may win."""
    wins = Counter(space.best_option(decision, {decision.name: row}, keep_none)[0] for row in draws)
    best = {option: wins[option] / len(draws) for option in decision.options}
    entropy = torch.special.entr(torch.tensor(draws)).sum(dim=-1).mean()  # of a draw's own probabilities
    return DecisionPosterior(best, credible_set(best), float(entropy))


def credible_set(probabilities: Mapping[str, float], *, level: float = CREDIBLE) -> tuple[str, ...]:
    """Return the fewest options with at least this probability in total, the most probable first."""
    chosen, total = [], 0.0
    for option, probability in sorted(probabilities.items(), key=lambda item: -item[1]):
        if total >= level - 1e-12:
            break
        chosen.append(option)
        total += probability
    return tuple(chosen)


def measure_mixing(policy: Logits, chains: Sequence[Tensor]) -> Mixing | None:
    """Return how well chains of draws [draws, logits] mixed: the worst effective sample size and R-hat of any logit.

    Returns None if ArviZ is not installed or there are too few draws. The two halves of a single chain are compared.
    Directions that a softmax cannot see are projected out first, because chains may differ there.
    """
    try:
        from arviz_stats.base import array_stats  # type: ignore[attr-defined]  # late: an optional extra
    except ImportError:
        return None
    statistics: Any = array_stats  # it has no types
    length = min(len(chain) for chain in chains)
    if length < FEWEST_DRAWS:
        return None
    stacked = torch.stack([policy.center(chain[-length:]) for chain in chains]).double().numpy()
    stacked = stacked[..., stacked.std(axis=(0, 1)) > SMALLEST_SPREAD]  # a logit that never moves has no sample size
    if stacked.shape[-1] == 0:
        return None
    sizes = statistics.ess(stacked, chain_axis=0, draw_axis=1)
    half = length // 2
    parts = stacked if len(chains) > 1 else stacked[:, -2 * half :].reshape(2, half, -1)
    ratios = statistics.rhat(parts, chain_axis=0, draw_axis=1)
    return Mixing(
        chains=len(chains),
        draws=length,
        effective_draws=float(sizes.min()),
        effective_draws_median=float(np.median(sizes)),
        r_hat=float(ratios.max()),
        r_hat_median=float(np.median(ratios)),
    )
