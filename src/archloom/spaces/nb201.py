"""The NAS-Bench-201 cell: every edge of a small complete graph takes one of five operations (Dong & Yang, 2020)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_doc import Doc

from archloom.core.errors import ParseError, require
from archloom.spaces.base import (
    MOST_CELLS,
    MOST_NODES,
    NONE,
    Architecture,
    CellGraph,
    CellNode,
    Decision,
    SearchSpace,
    combine_options,
)

OPERATIONS = (NONE, "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")


@dataclass(frozen=True, kw_only=True)
class Nb201(SearchSpace):
    """A cell of `nodes` states, each the sum of an operation on every earlier state; three stages of equal cells.

    Args:
        nodes: states of the cell, its input included.
        operations: the options of every edge.
        cells_per_stage: the depth, three stages of so many cells.

    Raises:
        SettingError: a setting is out of range.

    Examples:
        >>> import archloom
        >>> archloom.Nb201().cardinality, archloom.Nb201(nodes=3).cardinality
        (15625, 125)
    """

    nodes: Annotated[int, Doc("states of the cell, its input included")] = 4
    operations: Annotated[tuple[str, ...], Doc("what an edge may be")] = OPERATIONS
    cells_per_stage: Annotated[int, Doc("depth: three stages of so many cells")] = 5

    family: ClassVar[str] = "nb201"

    def __post_init__(self) -> None:
        object.__setattr__(self, "operations", tuple(self.operations))
        distinct = 0 < len(self.operations) == len(set(self.operations))
        require(
            {
                f"space.nodes must lie in 2..{MOST_NODES}, got {self.nodes}": 2 <= self.nodes <= MOST_NODES,
                f"space.cells_per_stage must lie in 1..{MOST_CELLS}, got {self.cells_per_stage}": (
                    1 <= self.cells_per_stage <= MOST_CELLS
                ),
                f"space.operations must be distinct names, got {list(self.operations)}": distinct,
            }
        )

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Return (from, to) of every edge, in the order of the text form: 0→1, 0→2, 1→2, 0→3, ..."""
        return tuple((source, target) for target in range(1, self.nodes) for source in range(target))

    def full_decisions(self) -> tuple[Decision, ...]:
        """Return every edge with all operations."""
        return tuple(Decision(f"{source}->{target}", self.operations) for source, target in self.edges)

    @property
    def cell_nodes(self) -> tuple[CellNode, ...]:
        """Return the nodes of the cell but its input."""
        return tuple(
            CellNode("cell", tuple(f"{source}->{target}" for source in range(target)))
            for target in range(1, self.nodes)
        )

    def enumerate(self) -> Iterator[Architecture]:
        """Yield every architecture."""
        return combine_options(self.decisions)

    def parse(self, text: str) -> Architecture:
        """Read `|op~0|+|op~0|op~1|+...`."""
        groups = text.strip().split("+")
        if len(groups) != self.nodes - 1:
            raise ParseError(
                f"an NB201 string of this space has {self.nodes - 1} groups joined by '+', got {text[:200]!r}"
            )
        choices = {}
        for target, group in enumerate(groups, start=1):
            inputs = re.fullmatch(r"\|" + r"([\w.\-]+)~(\d+)\|" * target, group.strip())
            if inputs is None or list(inputs.groups()[1::2]) != [str(source) for source in range(target)]:
                wanted = "|" + "".join(f"OPERATION~{source}|" for source in range(target))
                raise ParseError(f"group {target} of an NB201 string reads {wanted}, got {group[:200]!r}")
            for source, operation in enumerate(inputs.groups()[0::2]):
                choices[f"{source}->{target}"] = operation
        return self.check(choices)

    def format(self, architecture: Architecture) -> str:
        """Return the text form of NAS-Bench-201."""
        groups = (
            "|" + "".join(f"{architecture[f'{source}->{target}']}~{source}|" for source in range(target))
            for target in range(1, self.nodes)
        )
        return "+".join(groups)

    def graphs(self, architecture: Architecture) -> tuple[CellGraph, ...]:
        """Return the graph of the cell."""
        edges = tuple(
            (source, target, architecture[f"{source}->{target}"])
            for source, target in self.edges
            if architecture[f"{source}->{target}"] != NONE
        )
        return (CellGraph("cell", ("input",), self.nodes, edges, (self.nodes - 1,)),)

    def references(self) -> Mapping[str, Architecture]:
        """Return the ResNet block: two 3x3 convolutions in a row, with a skip over both."""
        last = self.nodes - 1
        chosen = {"0->1": "nor_conv_3x3", "1->2": "nor_conv_3x3", f"0->{last}": "skip_connect"}
        if last > 2:
            chosen[f"2->{last}"] = "skip_connect"
        try:
            block = self.check({**{decision.name: NONE for decision in self.decisions}, **chosen})
        except ParseError:  # too few nodes, or other operations
            return {}
        return {"ResNet block": block}

    def canonical(self, architecture: Architecture) -> str:
        """Return a text that isomorphic cells share, by the benchmark's own rule.

        The rule removes `skip_connect` and what `none` cuts off, and ignores the order of a sum. It keeps count of the
        zero terms in a sum, as the published table of 6,466 classes does; some cells that compute the same function
        therefore count as different.
        """
        states = ["0"]
        for target in range(1, self.nodes):
            terms = [self._term(states[source], architecture[f"{source}->{target}"]) for source in range(target)]
            states.append("+".join(sorted(terms)))
        return states[-1]

    @staticmethod
    def _term(state: str, operation: str) -> str:
        if operation == NONE or state == "#":
            return "#"
        return state if operation == "skip_connect" else f"({state})@{operation}"
