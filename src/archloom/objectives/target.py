"""A cost that the architecture found should have, and how a search is rewarded for coming near it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_doc import Doc
from torch import Tensor

from archloom.core.errors import require
from archloom.objectives.cost_source import CostSource, Probabilities
from archloom.spaces import Architecture

Reward = Literal["absolute", "soft", "hard"]

CHEAPEST = 1e-3  # relative to the target: what costs nothing would be of infinite worth to a soft reward
FEWEST = 3  # architectures that a slope can be told from


@dataclass(frozen=True, kw_only=True)
class TargetSettings:
    """What the architecture found should cost."""

    metric: Annotated[Literal["none", "latency", "multiply_adds", "parameters"], Doc("what is aimed at")] = "none"
    value: Annotated[float | None, Doc("how much of it: ms, multiply-adds or parameters")] = None
    source: Annotated[
        str | None, Doc("of latency: a device of the table, a .csv of your own, a .json of `archloom latency fit`")
    ] = None
    reward: Annotated[Reward, Doc("Q + beta |T/T0 - 1|, Q (T/T0)^beta, or the latter only above the target")] = (
        "absolute"
    )
    beta: Annotated[
        float, Doc("weight of the target: below minus what quality gains for each unit of ln T, or it does not bind")
    ] = -0.1
    tolerance: Annotated[float, Doc("how far off, relative to the target, still counts as met")] = 0.02
    strict: Annotated[bool, Doc("if it is missed, go on with the architecture alone, at a beta that binds")] = False
    strict_share: Annotated[float, Doc("steps of that, at most, as a share of the search's")] = 0.5

    def __post_init__(self) -> None:
        aimed, latency = self.metric != "none", self.metric == "latency"
        require(
            {
                f"target.value needs target.metric, got {self.value}": aimed or self.value is None,
                f"target.strict needs target.metric, got {self.strict}": aimed or not self.strict,
                f"target.metric '{self.metric}' needs target.value": not aimed or self.value is not None,
                f"target.value must be above 0, got {self.value}": self.value is None or 0 < self.value < math.inf,
                "target.metric 'latency' needs target.source: a device of the benchmark table, a .csv of your own, or "
                "a .json that archloom latency fit wrote": not latency or bool(self.source),
                f"target.source is for target.metric 'latency', got '{self.source}'": latency or self.source is None,
                f"target.beta must be below 0, got {self.beta}": self.beta < 0,
                f"target.tolerance must lie in (0, 1), got {self.tolerance}": 0 < self.tolerance < 1,
                f"target.strict_share must be above 0, got {self.strict_share}": self.strict_share > 0,
            }
        )

    @property
    def file(self) -> Path | None:
        """The source, where it is one."""
        return Path(self.source) if self.source and self.source.endswith((".csv", ".json")) else None


@dataclass(frozen=True, kw_only=True)
class Target:
    """So much of a cost, and what it is worth to have just that."""

    source: CostSource
    value: float
    reward: Reward = "absolute"
    beta: float = -0.1
    tolerance: float = 0.02
    _known: dict[Architecture, float] = field(default_factory=dict, repr=False, compare=False)

    def cost(self, architecture: Architecture) -> float:
        if architecture not in self._known:  # a search comes back to the same ones
            self._known[architecture] = self.source.measure(architecture)
        return self._known[architecture]

    def compute_reward(self, quality: float, architecture: Architecture) -> float:
        """The quality (0 to 1) of an architecture, less for what it costs."""
        if self.is_additive:
            return quality + self.cost_term(architecture)
        relative = self.cost(architecture) / self.value
        factor = math.pow(max(relative, CHEAPEST), self.beta)
        return quality * (min(1.0, factor) if self.reward == "hard" else factor)

    @property
    def is_additive(self) -> bool:
        """Whether the reward is the quality and, by itself, what the cost is worth."""
        return self.reward == "absolute"

    def cost_term(self, architecture: Architecture) -> float:
        """What its cost adds to the reward of an architecture, where the reward is such a sum."""
        return self.beta * abs(self.miss(architecture))

    def penalty(self, probabilities: Probabilities) -> Tensor:
        """What a loss rises by for the expected cost; of the two rewards that multiply, their negative logarithm."""
        relative = self.source.expected_cost(probabilities) / self.value
        if self.is_additive:
            return -self.beta * (relative - 1).abs()
        logarithm = relative.clamp_min(CHEAPEST).log()
        return -self.beta * (logarithm.clamp_min(0) if self.reward == "hard" else logarithm)

    def with_beta(self, beta: float) -> Target:
        return replace(self, beta=beta)

    # --- whether it is met

    def miss(self, architecture: Architecture) -> float:
        """How much too costly, relative to the target; below 0 is too cheap."""
        return self.cost(architecture) / self.value - 1

    def is_met_by(self, architecture: Architecture) -> bool:
        return abs(self.miss(architecture)) <= self.tolerance


def suggest_beta(sampled: Sequence[tuple[float, float]]) -> float | None:
    """The beta that would hold a target, by (quality, cost) of architectures: minus twice the slope along ln cost.

    A target holds if leaving it costs more than the quality that it buys. None where nothing can be told.
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
