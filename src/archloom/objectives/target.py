"""A target for the cost of the final architecture, and the reward for meeting it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from annotated_doc import Doc
from torch import Tensor

from archloom.core.errors import require
from archloom.objectives.cost_source import CostSource, Probabilities
from archloom.spaces import Architecture

Reward = Literal["absolute", "soft", "hard"]

CHEAPEST = 1e-3  # relative to the target: a cost of 0 would make a soft reward infinite
FEWEST = 3  # architectures for a slope


@dataclass(frozen=True, kw_only=True)
class TargetSettings:
    """The target for the cost of the final architecture."""

    metric: Annotated[
        Literal["none", "latency", "multiply_adds", "parameters"], Doc("the kind of cost that has a target")
    ] = "none"
    value: Annotated[float | None, Doc("the target: ms, multiply-adds or parameters")] = None
    source: Annotated[
        str | None, Doc("of latency: a device of the table, a .csv of your own, a .json of `archloom latency fit`")
    ] = None
    reward: Annotated[Reward, Doc("Q + beta |T/T0 - 1|, Q (T/T0)^beta, or the latter only above the target")] = (
        "absolute"
    )
    beta: Annotated[
        float,
        Doc("weight of the target; |beta| must exceed the gain in quality per unit of ln T, or the search misses it"),
    ] = -0.1
    tolerance: Annotated[float, Doc("largest miss, relative to the target, that still counts as met")] = 0.02
    strict: Annotated[
        bool, Doc("if it is missed, train the architecture parameters further, with frozen weights and a stronger beta")
    ] = False
    strict_share: Annotated[float, Doc("most of these steps, as a share of the steps of the search")] = 0.5

    def __post_init__(self) -> None:
        require(
            {
                **check_cost_settings("target", self.metric, self.value, self.source),
                f"target.strict needs target.metric, got {self.strict}": self.metric != "none" or not self.strict,
                f"target.beta must be below 0, got {self.beta}": self.beta < 0,
                f"target.tolerance must lie in (0, 1), got {self.tolerance}": 0 < self.tolerance < 1,
                f"target.strict_share must be above 0, got {self.strict_share}": self.strict_share > 0,
            }
        )

    @property
    def file(self) -> Path | None:
        """Return the source, if it is a file."""
        return find_source_file(self.source)


def check_cost_settings(section: str, metric: str, value: float | None, source: str | None) -> dict[str, bool]:
    """Return the rules of a section that names a cost, and whether each is kept."""
    is_set, latency = metric != "none", metric == "latency"
    return {
        f"{section}.value needs {section}.metric, got {value}": is_set or value is None,
        f"{section}.metric '{metric}' needs {section}.value": not is_set or value is not None,
        f"{section}.value must be above 0, got {value}": value is None or 0 < value < math.inf,
        f"{section}.metric 'latency' needs {section}.source: a device of the benchmark table, a .csv of your own, or "
        "a .json that archloom latency fit wrote": not latency or bool(source),
        f"{section}.source is for {section}.metric 'latency', got '{source}'": latency or source is None,
    }


def find_source_file(source: str | None) -> Path | None:
    """Return the source of a latency, if it is a file."""
    return Path(source) if source and source.endswith((".csv", ".json")) else None


@dataclass(frozen=True, kw_only=True)
class Target:
    """A cost to reach, and the reward for reaching it; one-sided, a cost to stay below.

    One-sided, penalty and reward act on costs above the value only, and every cost up to it meets the target.
    """

    source: CostSource
    value: float
    reward: Reward = "absolute"
    beta: float = -0.1
    tolerance: float = 0.02
    one_sided: bool = False
    _known: dict[Architecture, float] = field(default_factory=dict, repr=False, compare=False)

    def cost(self, architecture: Architecture) -> float:
        """Return the cost of an architecture."""
        if architecture not in self._known:  # a search repeats architectures
            self._known[architecture] = self.source.measure(architecture)
        return self._known[architecture]

    def compute_reward(self, quality: float, architecture: Architecture) -> float:
        """Return the reward of an architecture of this quality (0 to 1) and its cost."""
        if self.is_additive:
            return quality + self.cost_term(architecture)
        relative = self.cost(architecture) / self.value
        factor = math.pow(max(relative, CHEAPEST), self.beta)
        return quality * (min(1.0, factor) if self._acts_above_only else factor)

    @property
    def is_additive(self) -> bool:
        """Return whether the reward is the sum of the quality and a cost term."""
        return self.reward == "absolute"

    @property
    def _acts_above_only(self) -> bool:
        return self.one_sided or self.reward == "hard"

    def cost_term(self, architecture: Architecture) -> float:
        """Return the cost term of an additive reward; it is 0 at the target and negative elsewhere."""
        miss = self.miss(architecture)
        return self.beta * (max(0.0, miss) if self.one_sided else abs(miss))

    def penalty(self, probabilities: Probabilities) -> Tensor:
        """Return the penalty on a loss for the expected cost; for multiplicative rewards, their negative logarithm."""
        relative = self.source.expected_cost(probabilities) / self.value
        if self.is_additive:
            miss = relative - 1
            return -self.beta * (miss.clamp_min(0) if self.one_sided else miss.abs())
        logarithm = relative.clamp_min(CHEAPEST).log()
        return -self.beta * (logarithm.clamp_min(0) if self._acts_above_only else logarithm)

    def with_beta(self, beta: float) -> Target:
        """Return the same target with another weight."""
        return replace(self, beta=beta)

    # --- whether it is met

    def miss(self, architecture: Architecture) -> float:
        """Return how much too high the cost is, relative to the target; below 0 is too low."""
        return self.cost(architecture) / self.value - 1

    def is_met_by(self, architecture: Architecture) -> bool:
        """Return whether the cost is within the tolerance; one-sided, whether it is at most the value."""
        if self.one_sided:
            return self.cost(architecture) <= self.value
        return abs(self.miss(architecture)) <= self.tolerance


def suggest_beta(sampled: Sequence[tuple[float, float]]) -> float | None:
    """Return a beta that holds a target, from (quality, cost) of architectures: minus twice the slope along ln cost.

    A target holds if leaving it costs more reward than the quality it gains. Returns None if there are too few costs.
    """
    known = [(math.log(cost), quality) for quality, cost in sampled if cost > 0]
    if len(known) < FEWEST or len({cost for cost, _ in known}) < 2:
        return None
    costs, qualities = zip(*known, strict=True)
    return -2 * abs(statistics.linear_regression(costs, qualities).slope)


def make_target(settings: TargetSettings, source: CostSource) -> Target:
    """Return the target that a section of settings describes."""
    assert settings.value is not None, "checked with the metric"
    return Target(
        source=source,
        value=settings.value,
        reward=settings.reward,
        beta=settings.beta,
        tolerance=settings.tolerance,
    )
