"""Limits: a cost that the result of a search never exceeds, and the architectures that keep to it.

A space of few architectures is enumerated: the answer is exact. In a larger one, single decisions are changed, the best
change first; every architecture returned is allowed, and no single change makes it better.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from annotated_doc import Doc

from archloom.core.errors import ParseError, require
from archloom.families import OperationKind, family_of
from archloom.objectives.cost_source import CostSource
from archloom.objectives.target import Target, check_cost_settings, find_source_file
from archloom.spaces import NONE, Architecture, Decision, SearchSpace

MOST_ENUMERATED = 40_000  # architectures of a space that is enumerated

Measure = Callable[[Architecture], float]
Allowed = Callable[[Architecture], bool]


@dataclass(frozen=True, kw_only=True)
class LimitSettings:
    """The limit for the cost of the final network; the result of a search never exceeds it."""

    metric: Annotated[
        Literal["none", "latency", "multiply_adds", "parameters"], Doc("the kind of cost that has a limit")
    ] = "none"
    value: Annotated[float | None, Doc("the limit: ms, multiply-adds or parameters")] = None
    source: Annotated[
        str | None, Doc("of latency: a device of the table, a .csv of your own, a .json of `archloom latency fit`")
    ] = None
    beta: Annotated[float, Doc("weight of the penalty on costs above the limit while the search learns")] = -0.5

    def __post_init__(self) -> None:
        require(
            {
                **check_cost_settings("limit", self.metric, self.value, self.source),
                f"limit.beta must be below 0, got {self.beta}": self.beta < 0,
            }
        )

    @property
    def file(self) -> Path | None:
        """Return the source, if it is a file."""
        return find_source_file(self.source)


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A cost that must not be exceeded."""

    source: CostSource
    value: float
    beta: float = -0.5
    _known: dict[Architecture, float] = field(default_factory=dict, repr=False, compare=False)

    def cost(self, architecture: Architecture) -> float:
        """Return the cost of an architecture."""
        if architecture not in self._known:  # a search repeats architectures
            self._known[architecture] = self.source.measure(architecture)
        return self._known[architecture]

    def allows(self, architecture: Architecture) -> bool:
        """Return whether the cost is at most the limit; there is no tolerance."""
        return self.cost(architecture) <= self.value

    def sentence(self, architecture: Architecture) -> str:
        """Return `54.1M multiply-adds in the final network, at most 60M allowed`."""
        unit, caveat = self.source.unit, f", {self.source.caveat}" if self.source.caveat else ""
        cost, value = (format_amount(amount) for amount in (self.cost(architecture), self.value))
        if unit == "ms":
            return f"{cost} ms by {self.source.provenance}{caveat}, at most {value} ms allowed"
        return f"{cost} {unit} in the final network, at most {value} allowed"

    def to_target(self) -> Target:
        """Return the limit as a penalty above it, which strategies add to their loss or reward."""
        return Target(source=self.source, value=self.value, beta=self.beta, one_sided=True)


def format_amount(amount: float) -> str:
    """Return `54.1M`, `60,000`, `12.9`: four significant digits."""
    if amount >= 1e6:
        return f"{amount / 1e6:.4g}M" if amount < 1e10 else f"{amount / 1e6:,.0f}M"
    return f"{amount:,.0f}" if amount >= 1e4 else f"{amount:.4g}"


# --- the largest and the cheapest architecture


def largest(space: SearchSpace, cost: Measure, allowed: Allowed = lambda architecture: True) -> Architecture | None:
    """Return the allowed architecture of the highest cost, without dead edges; None if none is found.

    Of equal costs, the one with the longest skip connections in all, then the first, is returned. Where single changes
    decide, operations shrink before any is left out.

    Args:
        space: what can be chosen.
        cost: returns the cost of an architecture.
        allowed: returns whether an architecture may be returned.

    Returns:
        The architecture, or None.
    """
    if _is_enumerable(space):
        return _search_by_cost(space, lambda one: -cost(one), allowed)
    now = _find_extreme(space, cost)
    while not allowed(now):
        lower = [one for one in _changes(space, now) if cost(one) < cost(now)]
        if not lower:
            return None
        now = _pick_largest(space, _keep_learning(space, lower), cost, allowed)
    grown = _climb(space, now, cost, allowed)
    pruned = space.prune(grown)
    return pruned if allowed(pruned) else grown


def cheapest(space: SearchSpace, cost: Measure, allowed: Allowed = lambda architecture: True) -> Architecture | None:
    """Return the allowed architecture of the lowest cost, without dead edges; None if none is found.

    Args:
        space: what can be chosen.
        cost: returns the cost of an architecture.
        allowed: returns whether an architecture may be returned.

    Returns:
        The architecture, or None.
    """
    if _is_enumerable(space):
        return _search_by_cost(space, cost, allowed)
    found = space.prune(_find_extreme(space, lambda one: -cost(one)))
    return found if allowed(found) else None


def _is_enumerable(space: SearchSpace) -> bool:
    return space.cardinality <= MOST_ENUMERATED and type(space).enumerate is not SearchSpace.enumerate


def _search_by_cost(space: SearchSpace, order: Measure, allowed: Allowed) -> Architecture | None:
    """Return the first allowed architecture without dead edges, in rising order."""
    ordered = sorted(
        ((order(one), number, one) for number, one in enumerate(space.enumerate())), key=lambda row: row[0]
    )
    for _, group in itertools.groupby(ordered, key=lambda row: row[0]):
        equal = [one for _, _, one in group if allowed(one) and space.prune(one) == one]
        if equal:
            return max(equal, key=lambda one: _span_of_skips(space, one))  # the first of equals
    return None


def _keep_learning(space: SearchSpace, architectures: Sequence[Architecture]) -> list[Architecture]:
    """Return the architectures with the most operations that learn."""
    kind_of = family_of(space).kind_of
    counts = [sum(kind_of(name) is OperationKind.CONVOLUTION for name in one.values()) for one in architectures]
    return [one for one, count in zip(architectures, counts, strict=True) if count == max(counts)]


def _pick_largest(
    space: SearchSpace, architectures: Sequence[Architecture], cost: Measure, allowed: Allowed
) -> Architecture:
    """Return the one of the highest cost, an allowed one if there is any."""
    wanted = [one for one in architectures if allowed(one)] or architectures
    highest = max(map(cost, wanted))
    return max((one for one in wanted if cost(one) == highest), key=lambda one: _span_of_skips(space, one))


def _span_of_skips(space: SearchSpace, architecture: Architecture) -> int:
    """Return how many states all skip connections bridge: costs do not tell a residual connection from none."""
    family, graphs = family_of(space), space.graphs(architecture)
    edges = [edge for graph in graphs for edge in graph.edges]
    return sum(target - source for source, target, name in edges if family.kind_of(name) is OperationKind.SKIP)


def _find_extreme(space: SearchSpace, value: Measure) -> Architecture:
    """Return the architecture of the highest value: the best option of every decision, tried one by one."""
    base = _find_base(space)
    scores = {
        decision.name: [value(base.with_option(decision.name, option)) for option in decision.options]
        for decision in space.decisions
    }
    now, before = space.decode(scores), None
    while now != before:
        before = now
        for decision in space.decisions:
            now = max((now, *_changes_of(space, now, decision)), key=value)  # the first of equals
    return now


def _find_base(space: SearchSpace) -> Architecture:
    """Return an architecture whose single changes show what each option costs: with `none` wherever that is allowed."""
    empty = Architecture({d.name: NONE if NONE in space.allowed(d) else d.options[0] for d in space.decisions})
    even = {decision.name: [0.0] * len(decision.options) for decision in space.decisions}
    return empty if _is_valid(space, empty) else space.decode(even)


# --- single changes


def _changes(space: SearchSpace, architecture: Architecture) -> Iterator[Architecture]:
    """Yield the architectures that differ in one decision which matters."""
    active = space.active(architecture)
    for decision in space.decisions:
        if decision.name in active:
            yield from _changes_of(space, architecture, decision)


def _changes_of(space: SearchSpace, architecture: Architecture, decision: Decision) -> Iterator[Architecture]:
    chosen = architecture[decision.name]
    for option in decision.options:
        if option == chosen or (not space.none_may_win and NONE in (option, chosen)):
            continue  # where `none` is no operation, what is connected stays so
        changed = architecture.with_option(decision.name, option)
        if _is_valid(space, changed):
            yield changed


def _is_valid(space: SearchSpace, architecture: Architecture) -> bool:
    if type(space).check is SearchSpace.check:  # no rules beyond the options
        return True
    try:
        space.check(architecture)
    except ParseError:
        return False
    return True


def _climb(space: SearchSpace, start: Architecture, value: Measure, allowed: Allowed) -> Architecture:
    """Return what single changes that are allowed and raise the value lead to, the best change first."""
    now = start
    while True:
        better = [one for one in _changes(space, now) if value(one) > value(now) and allowed(one)]
        if not better:
            return now
        now = max(better, key=value)  # the first of equals


# --- repair


def repair(
    space: SearchSpace,
    architecture: Architecture,
    log_probability: Measure,
    cost: Measure,
    allowed: Allowed,
) -> Architecture | None:
    """Return the architecture, changed decision by decision until it is allowed; None if no change leads there.

    Each change is the one that loses the least log-probability per unit of cost saved. Then single changes follow that
    raise the log-probability and stay allowed.

    Args:
        space: what can be chosen.
        architecture: the one to start at.
        log_probability: returns the logarithm of an architecture's probability, or another figure to keep high.
        cost: returns the cost of an architecture.
        allowed: returns whether an architecture may be returned.

    Returns:
        The changed architecture; the same one if it is allowed already.
    """
    if allowed(architecture):
        return architecture
    now = architecture
    while not allowed(now):
        own, spent = log_probability(now), cost(now)
        cheaper = [one for one in _changes(space, now) if cost(one) < spent]
        if not cheaper:
            return None
        losses = {one: _loss(own, log_probability(one)) / (spent - cost(one)) for one in cheaper}
        now = min(cheaper, key=lambda one: losses[one])  # the first of equals
    return _climb(space, now, log_probability, allowed)


def _loss(before: float, after: float) -> float:
    """Return how much log-probability is lost; between two impossible architectures, nothing is."""
    return 0.0 if before == after == -math.inf else before - after
