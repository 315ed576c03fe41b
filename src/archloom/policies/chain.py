"""The draws of a sampled policy, and what they say: which option is best, how sure that is, which architectures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from archloom.policies.logits import Logits
from archloom.spaces import Architecture, Decision, Scores, SearchSpace

MOST_DRAWS = 4096  # kept; a longer chain keeps every second one, then every fourth
CREDIBLE = 0.95  # share of the draws that a credible set holds
MOST_ARCHITECTURES = 10  # told by frequency
SMALLEST_SPREAD = 1e-6  # of a logit that moves
FEWEST_DRAWS = 8  # in a chain whose mixing can be told


class Chain:
    """Logits in the order they were drawn. A long chain is thinned evenly."""

    def __init__(self, size: int) -> None:
        self.draws = torch.empty(0, size)
        self._seen, self._every = 0, 1

    def append(self, values: Tensor) -> None:
        if self._seen % self._every == 0:
            self.draws = torch.cat([self.draws, values.detach().to("cpu", torch.float32).unsqueeze(0)])
        self._seen += 1
        if len(self.draws) > MOST_DRAWS:
            self.draws, self._every = self.draws[::2].clone(), 2 * self._every

    def __len__(self) -> int:
        return len(self.draws)

    def last(self, share: float) -> Tensor:
        """The latest share of the draws, one at least if there is any."""
        count = max(1, round(share * len(self.draws)))
        return self.draws[-count:]

    def state_dict(self) -> dict[str, Any]:
        return {"draws": self.draws, "seen": self._seen, "every": self._every}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.draws, self._seen, self._every = state["draws"], state["seen"], state["every"]


def mean_probabilities(policy: Logits, draws: Tensor) -> Scores:
    """The probability of every option, averaged over draws."""
    return {name: rows.softmax(dim=-1).mean(dim=0).tolist() for name, rows in policy.split(draws).items()}


def count_architectures(
    space: SearchSpace, policy: Logits, draws: Tensor, *, keep_none: bool | None = None
) -> list[tuple[Architecture, int]]:
    """The architectures that draws decode to, with their numbers, the most frequent first."""
    drawn = {name: rows.softmax(dim=-1).tolist() for name, rows in policy.split(draws).items()}
    found = Counter(
        space.decode({name: rows[number] for name, rows in drawn.items()}, keep_none=keep_none)
        for number in range(len(draws))
    )
    return sorted(found.items(), key=lambda item: (-item[1], space.format(item[0])))


def posterior(space: SearchSpace, policy: Logits, draws: Tensor, *, keep_none: bool | None = None) -> dict[str, Any]:
    """What draws from a posterior say, as JSON: for every decision by itself, and for whole architectures."""
    rows = {name: rows.softmax(dim=-1).tolist() for name, rows in policy.split(draws).items()}
    found = count_architectures(space, policy, draws, keep_none=keep_none)
    return {
        "draws": len(draws),
        "different_architectures": len(found),
        "decisions": {d.name: _decision(space, d, rows[d.name], keep_none) for d in space.decisions},
        "architectures": [
            {"text": space.format(architecture), "architecture": dict(architecture), "frequency": count / len(draws)}
            for architecture, count in found[:MOST_ARCHITECTURES]
        ],
    }


def _decision(
    space: SearchSpace, decision: Decision, draws: Sequence[Sequence[float]], keep_none: bool | None
) -> dict[str, Any]:
    """How often each option is the best of those that may win, and the fewest options that hold most of these draws."""
    best = {option: count / len(draws) for option, count in _wins(space, decision, draws, keep_none).items()}
    entropy = torch.special.entr(torch.tensor(draws)).sum(dim=-1).mean()  # of a draw's own probabilities
    return {"best": best, "credible_set": credible_set(best), "entropy": float(entropy)}


def _wins(
    space: SearchSpace, decision: Decision, draws: Sequence[Sequence[float]], keep_none: bool | None
) -> dict[str, int]:
    counts = Counter(space.best_option(decision, {decision.name: row}, keep_none)[0] for row in draws)
    return {option: counts[option] for option in decision.options}


def credible_set(probabilities: Mapping[str, float], *, level: float = CREDIBLE) -> list[str]:
    """The fewest options with at least this probability in total, the most probable first."""
    chosen, total = [], 0.0
    for option, probability in sorted(probabilities.items(), key=lambda item: -item[1]):
        if total >= level - 1e-12:
            break
        chosen.append(option)
        total += probability
    return chosen


def mixing(policy: Logits, chains: Sequence[Tensor]) -> dict[str, float] | None:
    """How well chains of draws [draws, logits] mixed: the worst effective sample size and R-hat of any logit.

    By ArviZ, where it is installed; None where it is not, or where there are too few draws to say. One chain is
    compared with itself, first half and second. What a softmax cannot see is taken out first: chains may well differ
    there.
    """
    try:
        from arviz_stats.base import array_stats  # type: ignore[attr-defined]
    except ImportError:
        return None
    statistics: Any = array_stats
    length = min(len(chain) for chain in chains)
    if length < FEWEST_DRAWS:
        return None
    stacked = torch.stack([policy.centred(chain[-length:]) for chain in chains]).double().numpy()
    stacked = stacked[..., stacked.std(axis=(0, 1)) > SMALLEST_SPREAD]  # what never moves has no sample size
    if stacked.shape[-1] == 0:
        return None
    sizes = statistics.ess(stacked, chain_axis=0, draw_axis=1)
    half = length // 2
    parts = stacked if len(chains) > 1 else stacked[:, -2 * half :].reshape(2, half, -1)
    ratios = statistics.rhat(parts, chain_axis=0, draw_axis=1)
    return {
        "chains": len(chains),
        "draws": length,
        "effective_draws": float(sizes.min()),
        "effective_draws_median": float(np.median(sizes)),
        "r_hat": float(ratios.max()),
        "r_hat_median": float(np.median(ratios)),
    }
