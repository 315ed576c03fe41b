"""Read probabilities of options: log-probabilities and samples of architectures, and whether a search decided."""

from __future__ import annotations

import math
import random

from archloom.spaces import NONE, Architecture, Scores, SearchSpace

SMALLEST = 1e-6  # probability of an option: one that can hardly be sampled is not impossible
DECIDED = 1.25  # least ratio of the largest probability to a uniform one, in the median decision


def log_probability(
    space: SearchSpace, probabilities: Scores, architecture: Architecture, *, keep_none: bool | None = None
) -> float:
    """Return the sum of the log-probabilities of an architecture's options.

    Where `none` may not win, it marks an edge that the space's rule leaves out, and has no probability of its own.
    """
    counts_none = space.none_may_win if keep_none is None else keep_none
    logs = []
    for decision in space.decisions:
        option = architecture[decision.name]
        if option in decision.options and (counts_none or option != NONE or len(decision.options) == 1):
            logs.append(math.log(max(probabilities[decision.name][decision.index(option)], SMALLEST)))
    return math.fsum(logs)


def sample_architecture(
    space: SearchSpace, probabilities: Scores, rng: random.Random, *, keep_none: bool | None = None
) -> Architecture:
    """Sample an architecture, each option with its probability; a space that joins decisions applies its rule."""
    noisy = {name: [_log(value) + _sample_gumbel(rng) for value in row] for name, row in probabilities.items()}
    return space.decode(noisy, keep_none=keep_none)


def _log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -math.inf


def _sample_gumbel(rng: random.Random) -> float:
    return -math.log(rng.expovariate(1.0) or SMALLEST)  # an exponential of exactly zero would give infinity


def describe_indecision(probabilities: Scores) -> str | None:
    """Return a sentence if the probabilities are about uniform, else None.

    The median decision counts, by the ratio of its largest probability to a uniform one. Excluded options, of
    probability 0, and decisions with one option do not count.
    """
    possible = [[value for value in row if value > 0] for row in probabilities.values()]
    ratios = sorted((max(row) * len(row), max(row), 1 / len(row)) for row in possible if len(row) > 1)
    if not ratios:
        return None
    ratio, largest, uniform = ratios[(len(ratios) - 1) // 2]
    if ratio >= DECIDED:
        return None
    return f"the largest probability is {largest:.2f} of a uniform {uniform:.2f}: this is a random choice"
