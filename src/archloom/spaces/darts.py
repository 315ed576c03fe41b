"""The DARTS cell: two inputs, four nodes, two inputs kept per node (Liu et al., 2019), and the spaces derived from it.

GDAS stacks N cells per block and may fix the reduction cell; Amended-DARTS fixes the edges (S1) and gives each of
twenty cells its own choices (S2). All of these are settings of one class.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar, Literal

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
    Scores,
    SearchSpace,
)
from archloom.spaces.genotype import parse_genotype
from archloom.spaces.published import (
    DARTS_REFERENCES,
    PUBLISHED,
)

OPERATIONS = (
    NONE,
    "max_pool_3x3",
    "avg_pool_3x3",
    "skip_connect",
    "sep_conv_3x3",
    "sep_conv_5x5",
    "dil_conv_3x3",
    "dil_conv_5x5",
)
INPUTS = 2  # the outputs of the two cells before
KEPT_INPUTS = 2  # per node, where edges are searched
_MADE_BY = ("searched", "fixed")


@dataclass(frozen=True)
class CellSlot:
    """One position in the stack of cells. Slots of one name share their choices, unless the cell is fixed by hand."""

    name: str
    reduction: bool
    fixed: bool = False


@dataclass(frozen=True, kw_only=True)
class Darts(SearchSpace):
    """Stacked cells whose nodes sum two chosen operations on chosen earlier states."""

    operations: Annotated[tuple[str, ...], Doc("what an edge may be")] = OPERATIONS
    nodes: Annotated[int, Doc("intermediate states of a cell")] = 4
    edges: Annotated[
        Literal["searched", "fixed"], Doc("fixed: node i takes the state before it and the first input")
    ] = "searched"
    reduction: Annotated[Literal["searched", "fixed"], Doc("fixed: the hand-made reduction cell of GDAS")] = "searched"
    sharing: Annotated[Literal["kind", "none"], Doc("none: every cell makes its own choices")] = "kind"
    cells: Annotated[int, Doc("depth")] = 8
    cells_per_block: Annotated[
        int, Doc("above 0: three blocks of so many cells with a reduction cell between, instead of `cells`")
    ] = 0

    family: ClassVar[str] = "darts"
    none_may_win: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "operations", tuple(self.operations))
        distinct = len(self.operations) == len(set(self.operations)) and set(self.operations) - {NONE} != set()
        require(
            {
                f"space.nodes must lie in 1..{MOST_NODES}, got {self.nodes}": 1 <= self.nodes <= MOST_NODES,
                f"space.cells must lie in 1..{MOST_CELLS}, got {self.cells}": 1 <= self.cells <= MOST_CELLS,
                f"space.cells_per_block must lie in 0..{MOST_CELLS}, got {self.cells_per_block}": (
                    0 <= self.cells_per_block <= MOST_CELLS
                ),
                f"space.edges must be 'searched' or 'fixed', got {self.edges!r}": self.edges in _MADE_BY,
                f"space.reduction must be 'searched' or 'fixed', got {self.reduction!r}": self.reduction in _MADE_BY,
                f"space.sharing must be 'kind' or 'none', got {self.sharing!r}": self.sharing in ("kind", "none"),
                f"space.operations must be distinct names, more than none, got {list(self.operations)}": distinct,
            }
        )

    # --- layout

    @cached_property
    def slots(self) -> tuple[CellSlot, ...]:
        """Return the stack of cells; resolution halves at one third and at two thirds of it."""
        count = 3 * self.cells_per_block + 2 if self.cells_per_block else self.cells
        reductions = {count // 3, 2 * count // 3} if count >= 3 else set()
        return tuple(self._slot(position, position in reductions) for position in range(count))

    def _slot(self, position: int, reduction: bool) -> CellSlot:
        kind = "reduce" if reduction else "normal"
        name = f"cell{position}" if self.sharing == "none" else kind
        return CellSlot(name, reduction, fixed=reduction and self.reduction == "fixed")

    @cached_property
    def cell_names(self) -> tuple[str, ...]:
        """Return the searched cells, each once, in the order in which they first appear (normal before reduce)."""
        return tuple(dict.fromkeys(slot.name for slot in self.slots if not slot.fixed))

    def sources(self, node: int) -> tuple[int, ...]:
        """Return the states that node `node` (0, 1, ...) may read; states 0 and 1 are the inputs of the cell."""
        state = INPUTS + node
        return (0, state - 1) if self.edges == "fixed" else tuple(range(state))

    def edge_name(self, cell: str, source: int, node: int) -> str:
        """Return the name of the decision on an edge."""
        return f"{cell}/{source}->{INPUTS + node}"

    def full_decisions(self) -> tuple[Decision, ...]:
        """Return every edge with all operations."""
        return tuple(
            Decision(self.edge_name(cell, source, node), self.operations)
            for cell in self.cell_names
            for node in range(self.nodes)
            for source in self.sources(node)
        )

    @property
    def cell_nodes(self) -> tuple[CellNode, ...]:
        """Return the nodes of every searched cell, each cell once."""
        reductions = {slot.name for slot in self.slots if slot.reduction}
        return tuple(
            CellNode(
                cell,
                tuple(self.edge_name(cell, source, node) for source in self.sources(node)),
                keeps_resolution=cell not in reductions,
            )
            for cell in self.cell_names
            for node in range(self.nodes)
        )

    def unshare(self) -> tuple[Darts, Mapping[str, str]]:
        """Return the space in which every cell of the stack makes its own choices."""
        space = replace(self, sharing="none", kept=())
        searched = [
            (own.name, shared.name) for own, shared in zip(space.slots, self.slots, strict=True) if not shared.fixed
        ]
        names = {
            self.edge_name(own, source, node): self.edge_name(shared, source, node)
            for own, shared in searched
            for node in range(self.nodes)
            for source in self.sources(node)
        }
        kept = dict(self.kept)
        return space.restrict({own: kept[shared] for own, shared in names.items() if shared in kept}), names

    def allowed(self, decision: Decision) -> tuple[str, ...]:
        """Return an edge that is not kept says `none`, even where `none` is not among the operations."""
        if self.edges == "fixed" or NONE in decision.options:
            return decision.options
        return (NONE, *decision.options)

    def check(self, architecture: Mapping[str, str]) -> Architecture:
        """Return the architecture; raise an error if a node has more than two inputs."""
        checked = super().check(architecture)
        for cell in self.cell_names if self.edges == "searched" else ():
            for node in range(self.nodes):
                count = len(self._inputs(checked, cell, node))
                if count > KEPT_INPUTS:
                    raise ParseError(f"node {INPUTS + node} of cell '{cell}' must have at most 2 inputs, got {count}")
        return checked

    def _inputs(self, architecture: Architecture, cell: str, node: int) -> list[tuple[str, int]]:
        """Return the (operation, source) pairs that a node reads."""
        pairs = [(architecture[self.edge_name(cell, source, node)], source) for source in self.sources(node)]
        return [(operation, source) for operation, source in pairs if operation != NONE]

    @property
    def cardinality(self) -> int:
        """Return architectures with every kept edge connected: `none` is not counted as a choice."""
        return math.prod(self._node_cardinality(cell, node) for cell in self.cell_names for node in range(self.nodes))

    def _node_cardinality(self, cell: str, node: int) -> int:
        counts = [len(self._real_options(cell, source, node)) for source in self.sources(node)]
        if self.edges == "fixed":
            return math.prod(counts)
        return sum(first * second for i, first in enumerate(counts) for second in counts[i + 1 :])

    def _real_options(self, cell: str, source: int, node: int) -> list[str]:
        return [option for option in self.decision(self.edge_name(cell, source, node)).options if option != NONE]

    # --- choosing

    def decode(self, scores: Scores, *, keep_none: bool | None = None) -> Architecture:
        """Return the best operation of every edge and, where edges are searched, the two best edges of every node.

        Unless `keep_none`, `none` takes part neither in ranking edges nor in choosing operations, as in DARTS. With it,
        an edge that ranks among the two best through `none` is kept, and connects nothing.
        """
        best = {d.name: self.best_option(d, scores, keep_none) for d in self.decisions}
        choices = {name: operation for name, (operation, _) in best.items()}
        if self.edges == "searched":
            for cell in self.cell_names:
                for node in range(self.nodes):
                    names = [self.edge_name(cell, source, node) for source in self.sources(node)]
                    ranked = sorted(names, key=lambda name: -best[name][1])  # stable: the earlier edge wins a tie
                    choices.update(dict.fromkeys(ranked[KEPT_INPUTS:], NONE))
        return self.check(choices)

    def sample(self, rng: random.Random) -> Architecture:
        """Return a random architecture: inputs of every node, then their operations."""
        choices = {decision.name: NONE for decision in self.decisions}
        for cell in self.cell_names:
            for node in range(self.nodes):
                for source in self._draw_sources(cell, node, rng):
                    choices[self.edge_name(cell, source, node)] = rng.choice(self._real_options(cell, source, node))
        return Architecture(choices)

    def _draw_sources(self, cell: str, node: int, rng: random.Random) -> tuple[int, ...]:
        """Sample the inputs of a node; pairs of edges with more options are more likely: uniform over cells."""
        counts = {source: len(self._real_options(cell, source, node)) for source in self.sources(node)}
        usable = tuple(source for source, count in counts.items() if count)
        if self.edges == "fixed" or len(usable) <= KEPT_INPUTS:
            return usable
        pairs = list(itertools.combinations(usable, KEPT_INPUTS))
        return rng.choices(pairs, [counts[first] * counts[second] for first, second in pairs])[0]

    def mutate(self, parent: Architecture, rng: random.Random) -> Architecture:
        """Give one kept edge another operation or, where edges are searched, another source."""
        cell, node = rng.choice(self.cell_names), rng.randrange(self.nodes)
        inputs = [source for _, source in self._inputs(parent, cell, node)]
        unused = [source for source in self.sources(node) if source not in inputs]
        free = [source for source in unused if self._real_options(cell, source, node)]
        if not inputs and not free:
            return parent
        if not inputs:  # a node that reads nothing can only gain an input
            source = rng.choice(free)
            option = rng.choice(self._real_options(cell, source, node))
            return parent.with_option(self.edge_name(cell, source, node), option)
        source = rng.choice(inputs)
        name = self.edge_name(cell, source, node)
        others = [option for option in self._real_options(cell, source, node) if option != parent[name]]
        if free and self.edges == "searched" and (rng.random() < 0.5 or not others):
            target = rng.choice(free)
            options = self._real_options(cell, target, node)
            moved = parent[name] if parent[name] in options else rng.choice(options)
            return parent.with_option(name, NONE).with_option(self.edge_name(cell, target, node), moved)
        return parent.with_option(name, rng.choice(others)) if others else parent

    def references(self) -> Mapping[str, Architecture]:
        """Return the published cells that this space contains; of a space with one searched cell, their normal cell."""
        found = {title: self._find_published(name) for title, name in DARTS_REFERENCES.items()}
        return {title: architecture for title, architecture in found.items() if architecture is not None}

    def _find_published(self, name: str) -> Architecture | None:
        published = Darts().parse(PUBLISHED[name][1])
        if self.nodes != Darts().nodes or any(decision.name not in published for decision in self.decisions):
            return None
        try:
            return self.check({decision.name: published[decision.name] for decision in self.decisions})
        except ParseError:  # an edge or an operation that this space lacks
            return None

    # --- reading and writing

    def format(self, architecture: Architecture) -> str:
        """Return `Genotype(normal=[('sep_conv_3x3', 1), ...], normal_concat=range(2, 6), reduce=...)`."""
        concat = f"range({INPUTS}, {INPUTS + self.nodes})"
        cells = (
            f"{cell}={[pair for node in range(self.nodes) for pair in self._format_node(architecture, cell, node)]!r}, "
            f"{cell}_concat={concat}"
            for cell in self.cell_names
        )
        return f"Genotype({', '.join(cells)})"

    def _format_node(self, architecture: Architecture, cell: str, node: int) -> list[tuple[str, int]]:
        """Return a node's pairs; a genotype always lists two, so that missing inputs are written as `none`."""
        inputs = self._inputs(architecture, cell, node)
        used = {source for _, source in inputs}
        spare = [(NONE, source) for source in self.sources(node) if source not in used]
        return inputs + spare[: KEPT_INPUTS - len(inputs)]

    def parse(self, text: str) -> Architecture:
        """Return the architecture of a genotype."""
        cells = parse_genotype(text)
        unknown = set(cells) - {f"{name}{end}" for name in self.cell_names for end in ("", "_concat")}
        missing = [name for name in self.cell_names if name not in cells]
        if unknown or missing:
            what = f"lacks cell '{missing[0]}'" if missing else f"has an unknown part '{sorted(unknown)[0]}'"
            raise ParseError(f"the genotype {what}; this space has the cells {', '.join(self.cell_names)}")
        choices = {decision.name: NONE for decision in self.decisions}
        for cell in self.cell_names:
            choices.update(self._read_cell(cell, cells[cell]))
            concat = cells.get(f"{cell}_concat", list(range(INPUTS, INPUTS + self.nodes)))
            if concat != list(range(INPUTS, INPUTS + self.nodes)):
                raise ParseError(f"{cell}_concat must be range({INPUTS}, {INPUTS + self.nodes}), got {concat}")
        return self.check(choices)

    def _read_cell(self, cell: str, pairs: object) -> dict[str, str]:
        wanted = KEPT_INPUTS * self.nodes
        if not isinstance(pairs, list) or len(pairs) != wanted or not all(isinstance(pair, tuple) for pair in pairs):
            raise ParseError(f"cell '{cell}' must be a list of {wanted} pairs (operation, source)")
        choices: dict[str, str] = {}
        for position, (operation, source) in enumerate(pairs):
            node = position // KEPT_INPUTS
            name = self.edge_name(cell, source, node)
            if source not in self.sources(node) or name in choices:
                raise ParseError(
                    f"node {INPUTS + node} of cell '{cell}' must read two different states of "
                    f"{list(self.sources(node))}, got {source}"
                )
            choices[name] = operation
        return choices

    def graphs(self, architecture: Architecture) -> tuple[CellGraph, ...]:
        """Return one graph per cell."""
        states = INPUTS + self.nodes
        return tuple(
            CellGraph(
                name=cell,
                inputs=("c_{k-2}", "c_{k-1}"),
                nodes=states,
                edges=tuple(
                    (source, INPUTS + node, operation)
                    for node in range(self.nodes)
                    for operation, source in self._inputs(architecture, cell, node)
                ),
                outputs=tuple(range(INPUTS, states)),
            )
            for cell in self.cell_names
        )


__all__: Sequence[str] = ["INPUTS", "KEPT_INPUTS", "OPERATIONS", "CellSlot", "Darts"]
