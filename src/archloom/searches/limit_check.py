"""The limit at the end of a search: an architecture that exceeds it is changed until it fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from archloom.core.errors import SettingError
from archloom.objectives.limits import Limit, largest, repair
from archloom.searches.records import LimitResult
from archloom.spaces import Architecture, SearchSpace


def fit_limit(
    limit: Limit | None,
    space: SearchSpace,
    architecture: Architecture,
    log_probability: Callable[[Architecture], float],
    *,
    allowed: Callable[[Architecture], bool] = lambda architecture: True,
) -> Architecture:
    """Return the architecture without dead edges, changed as little as the limit demands.

    Dead edges cost nothing: all costs are those of pruned architectures. `allowed` is what else is asked of the result,
    such as a target; where no change meets both, the limit alone decides.
    """
    pruned = space.prune(architecture)
    if limit is None or limit.allows(pruned):
        return pruned

    def cost(one: Architecture) -> float:
        return limit.cost(space.prune(one))

    def fits(one: Architecture) -> bool:
        return cost(one) <= limit.value

    both = repair(space, pruned, log_probability, cost, lambda one: fits(one) and allowed(space.prune(one)))
    found = both or repair(space, pruned, log_probability, cost, fits) or largest(space, limit.cost, limit.allows)
    if found is None:  # the cheapest architecture was checked before the search
        raise SettingError(f"no architecture was found that costs at most limit.value {limit.value:g}; raise it")
    return space.prune(found)


def make_log_probability(
    space: SearchSpace, probabilities: Mapping[str, Sequence[float]]
) -> Callable[[Architecture], float]:
    """Return the logarithm of the probability of the decisions that matter to an architecture."""
    logarithms = {
        (decision.name, option): math.log(value) if value > 0 else -math.inf
        for decision in space.decisions
        for option, value in zip(decision.options, probabilities[decision.name], strict=True)
    }

    def log_probability(architecture: Architecture) -> float:
        active = space.active(architecture)
        chosen = ((name, option) for name, option in architecture.items() if name in active)
        return math.fsum(logarithms.get(choice, 0.0) for choice in chosen)  # an edge that is not kept has none

    return log_probability


def check_limit(limit: Limit | None, architecture: Architecture) -> LimitResult | None:
    """Return what an architecture costs and may cost."""
    if limit is None:
        return None
    return LimitResult(
        value=limit.value,
        unit=limit.source.unit,
        source=limit.source.provenance,
        cost=limit.cost(architecture),
        sentence=limit.sentence(architecture),
    )


def limit_sentence(checked: LimitResult | None) -> str:
    """Return the sentence of a verdict on the limit."""
    return "" if checked is None else f"{checked.sentence[0].upper()}{checked.sentence[1:]}."
