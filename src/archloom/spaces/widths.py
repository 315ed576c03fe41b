"""Widths only: the channels of every layer of a fixed cell network (NATS-Bench's size space; Dong et al., 2021)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

from annotated_doc import Doc

from archloom.core.errors import ParseError, SettingError, require
from archloom.spaces.base import (
    MOST_CELLS,
    Architecture,
    CellGraph,
    Decision,
    Feature,
    SearchSpace,
    combine_options,
)
from archloom.spaces.nb201 import Nb201

STAGES = 3
LONGEST_TEXT = 1_000


@dataclass(frozen=True, kw_only=True)
class Widths(SearchSpace):
    """Three stages of cells of one kind with residual blocks between; every cell and every block has a width."""

    options: Annotated[tuple[int, ...], Doc("widths to choose from")] = (8, 16, 24, 32, 40, 48, 56, 64)
    cells_per_stage: Annotated[int, Doc("three stages of so many cells")] = 1
    cell: Annotated[str, Doc("the cell, as an NB201 string; here the one that the published networks have")] = (
        "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"
    )

    family: ClassVar[str] = "widths"

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", tuple(self.options))
        distinct = 0 < len(self.options) == len(set(self.options)) and min(self.options) > 0
        require(
            {
                f"space.options must be one or more distinct widths above 0, got {list(self.options)}": distinct,
                f"space.cells_per_stage must lie in 1..{MOST_CELLS}, got {self.cells_per_stage}": (
                    1 <= self.cells_per_stage <= MOST_CELLS
                ),
            }
        )
        try:
            graph = self.cell_graph
        except ParseError as error:
            raise SettingError(f"space.cell: {error}") from error
        reached = {target for _, target, _ in graph.edges}
        complete = reached == set(range(1, graph.nodes))
        require({f"space.cell must connect every node, got {self.cell!r}": complete})

    @cached_property
    def cell_graph(self) -> CellGraph:
        """Return the cell that all stages have."""
        space = Nb201(nodes=self.cell.count("+") + 2)
        (graph,) = space.graphs(space.parse(self.cell))
        return graph

    @cached_property
    def reductions(self) -> tuple[bool, ...]:
        """Return for every layer, whether it is a residual block that halves the resolution; else it is a cell."""
        stage = [False] * self.cells_per_stage
        return tuple(stage + [True, *stage] * (STAGES - 1))

    def full_decisions(self) -> tuple[Decision, ...]:
        """Return one width decision per layer."""
        options = tuple(str(width) for width in sorted(self.options))
        return tuple(Decision(f"width{number}", options) for number in range(1, len(self.reductions) + 1))

    @property
    def widths(self) -> frozenset[str]:
        """Return the names of all decisions: each is a width."""
        return frozenset(decision.name for decision in self.decisions)

    def cost_features(self, architecture: Architecture) -> tuple[Feature, ...]:
        """Pair each width with the one before it: the cost of a layer depends on both."""
        chosen = [(decision.name, architecture[decision.name]) for decision in self.decisions]
        return ((chosen[0],), *itertools.pairwise(chosen))

    def enumerate(self) -> Iterator[Architecture]:
        """Yield every architecture."""
        return combine_options(self.decisions)

    def parse(self, text: str) -> Architecture:
        """Read `8:16:24:32:64`."""
        widths = text.strip().split(":")
        if len(text) > LONGEST_TEXT or len(widths) != len(self.decisions):
            raise ParseError(
                f"an architecture of this space is {len(self.decisions)} widths joined by ':', got {text[:60]!r}"
            )
        return self.check({d.name: width.strip() for d, width in zip(self.decisions, widths, strict=True)})

    def format(self, architecture: Architecture) -> str:
        """Return the widths as text."""
        return ":".join(architecture[decision.name] for decision in self.decisions)

    def graphs(self, architecture: Architecture) -> tuple[CellGraph, ...]:
        """Return the chain of cells and residual blocks, with their widths."""
        kinds = {False: "cell", True: "residual block"}
        edges = tuple(
            (number, number + 1, f"{kinds[reduction]}, {architecture[decision.name]}")
            for number, (decision, reduction) in enumerate(zip(self.decisions, self.reductions, strict=True))
        )
        return (CellGraph("network", ("stem",), len(edges) + 1, edges, (len(edges),)),)
