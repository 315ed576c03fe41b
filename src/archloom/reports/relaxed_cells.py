"""The cells of a search while it runs: what it would return now, with the probability of every choice.

Which decision stands behind an edge follows from the space alone: the edges that change when the decision does. So the
cells of any space can be drawn, those of plug-ins, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from archloom.reports.cells import PLAIN, EdgeView, draw_cells
from archloom.spaces.base import NONE, Architecture, CellGraph, Decision, SearchSpace

MOST_WITH_NONE = 12  # decisions up to which an edge that is `none` is drawn, too: it keeps the drawing in its place

Probabilities = Mapping[str, Sequence[float]]
EdgeNames = Sequence[Sequence[tuple[str, ...]]]
"""The decisions behind every edge of every graph."""


def draw_relaxed(space: SearchSpace, architecture: Architecture, probabilities: Probabilities | None) -> str:
    """Draw an architecture with the width of every edge by the probability of its operation."""
    drawn = _without_none(space, architecture)
    graphs = space.graphs(drawn)
    names = find_decisions(space, drawn, graphs)
    by_name = {decision.name: decision for decision in space.decisions}
    views = [
        [
            _view(edge[2], behind, architecture, probabilities or {}, by_name)
            for edge, behind in zip(g.edges, n, strict=True)
        ]
        for g, n in zip(graphs, names, strict=True)
    ]
    shown = [replace(g, edges=_with_none(g, n, architecture)) for g, n in zip(graphs, names, strict=True)]
    return draw_cells(shown, title="", views=views) if shown else ""


def _without_none(space: SearchSpace, architecture: Architecture) -> Architecture:
    """Return the architecture with another option for every `none`, in spaces that are small enough to draw whole."""
    if len(space.decisions) > MOST_WITH_NONE:
        return architecture
    others = {
        decision.name: next((option for option in decision.options if option != NONE), NONE)
        for decision in space.decisions
        if architecture.get(decision.name) == NONE
    }
    return Architecture({**architecture, **others})


def _with_none(
    graph: CellGraph, names: Sequence[tuple[str, ...]], architecture: Architecture
) -> tuple[tuple[int, int, str], ...]:
    return tuple(
        (source, target, NONE if any(architecture.get(name) == NONE for name in behind) else operation)
        for (source, target, operation), behind in zip(graph.edges, names, strict=True)
    )


def find_decisions(space: SearchSpace, architecture: Architecture, graphs: Sequence[CellGraph]) -> EdgeNames:
    """Return the decisions behind every edge: an edge that changes or goes when a decision changes depends on it."""
    names: list[list[tuple[str, ...]]] = [[() for _ in graph.edges] for graph in graphs]
    for decision in space.decisions:
        other = next((option for option in decision.options if option != architecture.get(decision.name)), None)
        if other is None:
            continue
        changed = {graph.name: graph for graph in space.graphs(architecture.with_option(decision.name, other))}
        for graph, found in zip(graphs, names, strict=True):
            kept = changed[graph.name].edges if graph.name in changed else ()
            for place, edge in enumerate(graph.edges):
                if edge not in kept:
                    found[place] += (decision.name,)
    return names


def _view(
    operation: str,
    names: Sequence[str],
    architecture: Architecture,
    probabilities: Probabilities,
    decisions: Mapping[str, Decision],
) -> EdgeView:
    """Return the text of an edge and the probability of its operation: the product over its decisions."""
    is_none = any(architecture.get(name) == NONE for name in names)
    shares = [_share(decisions[name], architecture.get(name), probabilities.get(name)) for name in names]
    probability = math.prod(shares) if shares else PLAIN
    text = NONE if is_none else operation
    if math.isnan(probability):
        return EdgeView(text, PLAIN)
    notes = [_describe(decisions[name], probabilities.get(name, ())) for name in names]
    return EdgeView(f"{text} {100 * probability:.0f} %", probability, "; ".join(notes))


def _share(decision: Decision, option: str | None, row: Sequence[float] | None) -> float:
    """Return the probability of an option; rows of scores are no probabilities and are not drawn as such."""
    if row is None or option not in decision.options or len(row) != len(decision.options):
        return math.nan
    if min(row) < 0 or max(row) > 1 + 1e-6:
        return math.nan
    return row[decision.options.index(option)]


def _describe(decision: Decision, row: Sequence[float]) -> str:
    pairs = sorted(zip(decision.options, row, strict=False), key=lambda pair: -pair[1])
    return f"{decision.name}: " + ", ".join(f"{option} {100 * value:.0f} %" for option, value in pairs)
