"""Defects of architectures: cells that connect nothing, and cells in which nothing learns."""

from __future__ import annotations

from archloom.families.base import OperationKind, family_of
from archloom.spaces import Architecture, SearchSpace
from archloom.spaces.live_edges import find_live_edges, is_connected


def find_defect(space: SearchSpace, architecture: Architecture) -> str | None:
    """Return what is wrong with an architecture, in words, or None: what each live operation does decides.

    Args:
        space: the space of the architecture.
        architecture: one option per decision.

    Returns:
        `the cell is an identity: no operation learns`, `no operation of the cell learns: it only pools and skips`,
        `no path connects input and output`, or None.

    Examples:
        >>> from archloom.families.defects import find_defect
        >>> from archloom.spaces import Nb201
        >>> space = Nb201(nodes=3)
        >>> find_defect(space, space.parse("|skip_connect~0|+|none~0|skip_connect~1|"))
        'the cell is an identity: no operation learns'
    """
    graphs = space.graphs(architecture)
    if not all(is_connected(graph) for graph in graphs):
        return "no path connects input and output"
    kinds = {family_of(space).kind_of(edge[2]) for graph in graphs for edge in find_live_edges(graph)}
    if not graphs or OperationKind.CONVOLUTION in kinds:
        return None
    if OperationKind.POOL in kinds:
        return "no operation of the cell learns: it only pools and skips"
    return "the cell is an identity: no operation learns"
