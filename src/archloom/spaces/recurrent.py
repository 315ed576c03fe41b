"""The recurrent cell of DARTS and GDAS: every node reads one earlier state by one activation (Liu et al., 2019).

State 0 is made of the input word and the cell's last output. Node i then reads one state j < i through its own
matrix and an activation f: s_i = s_j + c (f(u) - s_j), with [c, u] = s_j W_i and a gate c. The output is the mean of
the nodes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_doc import Doc

from archloom.core.errors import ParseError, require
from archloom.spaces.base import MOST_NODES, NONE, Architecture, CellGraph, Decision, Scores, SearchSpace
from archloom.spaces.genotype import parse_genotype
from archloom.spaces.published import PUBLISHED, RECURRENT_REFERENCES

ACTIVATIONS = ("tanh", "relu", "sigmoid", "identity")
CELL = "recurrent"
OUTPUTS = ("all", "loose_ends")

Node = tuple[str, int]  # the activation of a node, and the state that it reads


@dataclass(frozen=True, kw_only=True)
class Recurrent(SearchSpace):
    """A cell of `nodes` nodes, each of which reads one earlier state by one activation.

    Args:
        nodes: nodes of the cell; the state made of input and last output is not one of them.
        activations: the options of every edge, besides `none`.
        output: whether all nodes are averaged, or those that no other node reads.

    Raises:
        SettingError: a setting is out of range.

    Examples:
        >>> from archloom.spaces import Recurrent
        >>> f"{Recurrent().cardinality:,}"
        '2,642,411,520'
        >>> space = Recurrent(nodes=2)
        >>> space.format(space.parse("Genotype(recurrent=[('tanh', 0), ('relu', 1)], concat=range(1, 3))"))
        "Genotype(recurrent=[('tanh', 0), ('relu', 1)], concat=range(1, 3))"
    """

    nodes: Annotated[int, Doc("nodes of the cell, without the state made of the input and the last output")] = 8
    activations: Annotated[tuple[str, ...], Doc("what an edge may be, besides `none`")] = ACTIVATIONS
    output: Annotated[Literal["all", "loose_ends"], Doc("the nodes averaged: all, or those that no node reads")] = "all"

    family: ClassVar[str] = "recurrent"
    none_may_win: ClassVar[bool] = False
    cell_names: ClassVar[tuple[str, ...]] = (CELL,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "activations", tuple(self.activations))
        unknown = [name for name in self.activations if name not in ACTIVATIONS]
        distinct = 0 < len(self.activations) == len(set(self.activations))
        require(
            {
                f"space.nodes must lie in 1..{MOST_NODES}, got {self.nodes}": 1 <= self.nodes <= MOST_NODES,
                f"space.activations must be distinct names of {', '.join(ACTIVATIONS)}, got {list(self.activations)}": (
                    distinct and not unknown
                ),
                f"space.output must be 'all' or 'loose_ends', got {self.output!r}": self.output in OUTPUTS,
            }
        )

    # --- decisions

    def edge_name(self, source: int, node: int) -> str:
        """Return the name of the decision on an edge from a state to a node, both counted from 0 and 1."""
        return f"{source}->{node}"

    def full_decisions(self) -> tuple[Decision, ...]:
        """Return every edge with `none` and all activations."""
        options = (NONE, *self.activations)
        return tuple(
            Decision(self.edge_name(source, node), options)
            for node in range(1, self.nodes + 1)
            for source in range(node)
        )

    def allowed(self, decision: Decision) -> tuple[str, ...]:
        """Return the options of an edge; one that is not kept says `none`, even where `none` is not offered."""
        return decision.options if NONE in decision.options else (NONE, *decision.options)

    @property
    def cardinality(self) -> int:
        """Return the number of cells whose nodes all read a state: `none` is not counted as a choice."""
        return math.prod(
            sum(len(self._real_options(source, node)) for source in range(node)) for node in range(1, self.nodes + 1)
        )

    def _real_options(self, source: int, node: int) -> list[str]:
        return [option for option in self.decision(self.edge_name(source, node)).options if option != NONE]

    def check(self, architecture: Mapping[str, str]) -> Architecture:
        """Return the architecture; raise an error if a node reads more than one state."""
        checked = super().check(architecture)
        for node in range(1, self.nodes + 1):
            names = [self.edge_name(source, node) for source in range(node)]
            count = sum(checked[name] != NONE for name in names)
            if count > 1:
                raise ParseError(f"node {node} must read one state, got {count}")
        return checked

    def read_nodes(self, architecture: Mapping[str, str]) -> list[Node | None]:
        """Return what each node reads, from node 1 on; None for a node that reads nothing."""
        found: list[Node | None] = []
        for node in range(1, self.nodes + 1):
            pairs = ((architecture[self.edge_name(source, node)], source) for source in range(node))
            found.append(next((pair for pair in pairs if pair[0] != NONE), None))
        return found

    def list_outputs(self, architecture: Mapping[str, str]) -> tuple[int, ...]:
        """Return the states that the output averages."""
        everything = tuple(range(1, self.nodes + 1))
        if self.output == "all":
            return everything
        read = {node[1] for node in self.read_nodes(architecture) if node is not None}
        return tuple(state for state in everything if state not in read)

    # --- choosing

    def decode(self, scores: Scores, *, keep_none: bool | None = None) -> Architecture:
        """Return the best edge of every node, with its best activation; the lower state wins a tie.

        Unless `keep_none`, `none` takes no part. With it, a node whose best edge is best left out reads nothing.
        """
        choices = {decision.name: NONE for decision in self.decisions}
        for node in range(1, self.nodes + 1):
            names = [self.edge_name(source, node) for source in range(node)]
            best = {name: self.best_option(self.decision(name), scores, keep_none) for name in names}
            winner = max(names, key=lambda name: best[name][1])
            choices[winner] = best[winner][0]
        return self.check(choices)

    def sample(self, rng: random.Random) -> Architecture:
        """Return a cell drawn uniformly: of every node, one pair of a state and an activation."""
        choices = {decision.name: NONE for decision in self.decisions}
        for node in range(1, self.nodes + 1):
            pairs = self._list_pairs(node)
            if pairs:
                name, option = rng.choice(pairs)
                choices[name] = option
        return Architecture(choices)

    def mutate(self, parent: Architecture, rng: random.Random) -> Architecture:
        """Give one node another activation, or another state to read."""
        node = rng.randint(1, self.nodes)
        current = self.read_nodes(parent)[node - 1]
        pairs = self._list_pairs(node)
        if current is None:
            changed = pairs
        else:
            own, edge = current[0], self.edge_name(current[1], node)
            options = [pair for pair in pairs if pair[0] == edge and pair[1] != own]
            sources = [pair for pair in pairs if pair[0] != edge and pair[1] == own]
            changed = sources if sources and (rng.random() < 0.5 or not options) else options
        if not changed:
            return parent
        name, option = rng.choice(changed)
        closed = {self.edge_name(source, node): NONE for source in range(node)}
        return Architecture({**parent, **closed, name: option})

    def _list_pairs(self, node: int) -> list[tuple[str, str]]:
        """Return every edge into a node with each of its activations."""
        return [
            (self.edge_name(source, node), option)
            for source in range(node)
            for option in self._real_options(source, node)
        ]

    def prune(self, architecture: Architecture) -> Architecture:
        """Return the architecture as it is: every node is averaged or read, and a state of zeros still computes."""
        return architecture

    def references(self) -> Mapping[str, Architecture]:
        """Return the published cells that this space contains."""
        found: dict[str, Architecture] = {}
        for title, name in RECURRENT_REFERENCES.items():
            try:
                found[title] = self.parse(PUBLISHED[name][1])
            except ParseError:  # another number of nodes, another output, or an activation that this space lacks
                continue
        return found

    # --- reading and writing

    def format(self, architecture: Architecture) -> str:
        """Return `Genotype(recurrent=[('sigmoid', 0), ('relu', 1), ...], concat=range(1, 9))`."""
        pairs = [node or (NONE, 0) for node in self.read_nodes(architecture)]
        outputs = self.list_outputs(architecture)
        is_range = outputs == tuple(range(1, self.nodes + 1))
        concat = f"range(1, {self.nodes + 1})" if is_range else repr(list(outputs))
        return f"Genotype(recurrent={pairs!r}, concat={concat})"

    def parse(self, text: str) -> Architecture:
        """Return the architecture of a genotype."""
        parts = parse_genotype(text)
        unknown = sorted(set(parts) - {CELL, "concat"})
        if unknown or CELL not in parts:
            what = f"has an unknown part '{unknown[0]}'" if unknown else f"lacks cell '{CELL}'"
            raise ParseError(f"the genotype {what}; a recurrent cell reads Genotype(recurrent=[...], concat=...)")
        architecture = self.check(self._read_pairs(parts[CELL]))
        wanted = list(self.list_outputs(architecture))
        concat = parts.get("concat", wanted)
        if not isinstance(concat, list) or sorted(map(str, concat)) != sorted(map(str, wanted)):
            rule = "all nodes" if self.output == "all" else "the nodes that no node reads"
            raise ParseError(f"concat must be {rule}, {wanted}, got {concat}")
        return architecture

    def _read_pairs(self, pairs: object) -> dict[str, str]:
        if not isinstance(pairs, list) or len(pairs) != self.nodes or not all(isinstance(one, tuple) for one in pairs):
            count = len(pairs) if isinstance(pairs, list) else 0
            raise ParseError(f"cell '{CELL}' must be a list of {self.nodes} pairs (activation, state), got {count}")
        choices = {decision.name: NONE for decision in self.decisions}
        for node, (activation, source) in enumerate(pairs, start=1):
            if not 0 <= source < node:
                raise ParseError(f"node {node} must read a state of 0..{node - 1}, got {source}")
            choices[self.edge_name(source, node)] = activation
        return choices

    def graphs(self, architecture: Architecture) -> tuple[CellGraph, ...]:
        """Return the cell as one graph; its input is made of the word and of the last output."""
        edges = tuple(
            (pair[1], node, pair[0])
            for node, pair in enumerate(self.read_nodes(architecture), start=1)
            if pair is not None
        )
        outputs = self.list_outputs(architecture)
        return (CellGraph(CELL, ("x, h",), self.nodes + 1, edges, outputs, joined_by="mean"),)
