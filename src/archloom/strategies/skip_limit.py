"""The refinement of P-DARTS: skips of a cell are deleted, the least probable first, until few enough are left."""

from __future__ import annotations

import math

from archloom.families import OperationKind, family_of
from archloom.spaces import NONE, Scores, SearchSpace

DELETED = -1.0  # the score of a deleted skip: below every probability, but above options that are not there


def limit_skips(space: SearchSpace, scores: Scores, limit: int) -> Scores:
    """Return scores whose cells have at most `limit` skips, where cells keep the resolution.

    The least probable skip among the kept edges of a cell loses its score. Then every edge takes its best option again,
    and every node its best edges: an edge that lost its skip may lose its place.
    """
    rows = {name: list(row) for name, row in scores.items()}
    for decision in space.decisions:  # `none` takes no part
        for place, option in enumerate(decision.options):
            if option == NONE:
                rows[decision.name][place] = -math.inf
    for names in _limited_cells(space).values():
        while _delete_skip(space, rows, names, limit):
            pass
    return rows


def _limited_cells(space: SearchSpace) -> dict[str, list[str]]:
    """Return the decisions of every cell that keeps the resolution."""
    cells: dict[str, list[str]] = {}
    for node in space.cell_nodes:
        if node.keeps_resolution:
            cells.setdefault(node.cell, []).extend(node.inputs)
    return cells


def _delete_skip(space: SearchSpace, rows: dict[str, list[float]], names: list[str], limit: int) -> bool:
    """Delete the least probable skip that a cell keeps; return False where nothing is to be or can be deleted."""
    derived, kind_of = space.decode(rows, keep_none=False), family_of(space).kind_of
    kept = [name for name in names if kind_of(derived[name]) is OperationKind.SKIP]
    places = {name: space.decision(name).index(derived[name]) for name in kept}
    present = [name for name in kept if rows[name][places[name]] > DELETED]
    if len(kept) <= limit or not present:
        return False
    least = min(present, key=lambda name: rows[name][places[name]])
    rows[least][places[least]] = DELETED
    return True
