"""Live edges: those on a path from an input of a cell to an output. All others compute what nothing uses."""

from __future__ import annotations

from collections.abc import Iterable

from archloom.spaces.base import CellGraph

Edge = tuple[int, int, str]


def find_live_edges(graph: CellGraph) -> tuple[Edge, ...]:
    """Return the edges that lie on a path from an input of the cell to an output, in their order."""
    fed = _reach(range(len(graph.inputs)), [(source, target) for source, target, _ in graph.edges])
    used = _reach(graph.outputs, [(target, source) for source, target, _ in graph.edges])
    return tuple(edge for edge in graph.edges if edge[0] in fed and edge[1] in used)


def is_connected(graph: CellGraph) -> bool:
    """Return whether a path leads from an input of the cell to an output."""
    return bool(_reach(range(len(graph.inputs)), [edge[:2] for edge in graph.edges]).intersection(graph.outputs))


def _reach(start: Iterable[int], steps: list[tuple[int, int]]) -> set[int]:
    """Return the states that steps lead to from the start, the start included."""
    reached, found = set(start), True
    while found:
        new = {target for source, target in steps if source in reached} - reached
        reached, found = reached | new, bool(new)
    return reached
