"""What a search may return at a cost: the target that it should meet, and the limit that it never exceeds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from archloom.objectives.limits import Limit
from archloom.objectives.target import Target, suggest_beta
from archloom.searches.limit_check import fit_limit, make_log_probability
from archloom.searches.records import StrictSteps
from archloom.searches.shared_score import SharedScore
from archloom.searches.target_check import enforce_target
from archloom.spaces import Architecture
from archloom.strategies.base import Evaluate, OneShot
from archloom.strategies.differentiable import Differentiable

SLOPE_SAMPLES = 30  # architectures that a beta is suggested from


@dataclass(frozen=True, kw_only=True)
class CostRules:
    """The target and the limit of a search; either may be missing."""

    strategy: OneShot
    target: Target | None = None
    limit: Limit | None = None
    strict_share: float = 0.0  # extra steps at most, as a share of all steps, if the target is missed

    def begin(self) -> None:
        """Let the strategy search at the cost: a limit is a target that only higher costs miss."""
        if self.target is not None:
            self.strategy.set_target(self.target)
        elif self.limit is not None:
            self.strategy.set_target(self.limit.to_target())

    def allow(self, architecture: Architecture) -> bool:
        """Return whether an architecture may be the result."""
        meets_target = self.target is None or self.target.is_met_by(architecture)
        return meets_target and (self.limit is None or self.limit.allows(architecture))

    def fit(self, architecture: Architecture, evaluate: Evaluate) -> Architecture:
        """Return the architecture without dead edges, and changed until the limit allows it."""
        space, probabilities = self.strategy.space, self.strategy.probabilities()
        quality = evaluate if probabilities is None else make_log_probability(space, probabilities)
        return fit_limit(self.limit, space, architecture, quality, allowed=self.allow)

    def compute_reward(self, score: float, architecture: Architecture) -> float:
        """Return the score of a path, minus penalties for missing the target and for exceeding the limit."""
        reward = score if self.target is None else self.target.compute_reward(score, architecture)
        if self.limit is None or self.limit.allows(self.strategy.space.prune(architecture)):
            return reward
        return self.limit.to_target().compute_reward(reward, architecture) - 1  # below every allowed path

    def sample_costs(self, evaluate: SharedScore) -> list[tuple[float, float]]:
        """Return quality, as the strategy measures it, and cost of architectures sampled uniformly."""
        assert self.target is not None
        rng = self.strategy.python_random()
        architectures = [self.strategy.path_space.sample(rng) for _ in range(SLOPE_SAMPLES)]
        quality = evaluate.likelihood if isinstance(self.strategy, Differentiable) else evaluate
        return [(quality(architecture), self.target.cost(architecture)) for architecture in architectures]

    def enforce(
        self,
        *,
        total: int,
        sample: Callable[[], list[tuple[float, float]]],
        begin: Callable[[], Callable[[float], object]],
        derive: Callable[[], Architecture],
    ) -> StrictSteps | None:
        """Take extra steps until the target is met, if it is missed and extra steps are allowed.

        `begin` is called once before them and returns what takes a step, given the share that is done.
        """
        target, steps = self.target, math.ceil(self.strict_share * total)
        if target is None or not steps or target.is_met_by(derive()):
            return None
        step = begin()
        return enforce_target(
            target,
            suggested_beta=suggest_beta(sample()),
            steps=steps,
            set_target=self.strategy.set_target,
            step=step,
            derive=derive,
        )
