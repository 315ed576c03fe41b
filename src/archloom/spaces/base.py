"""Search spaces: what can be chosen, independent of how it is computed.

A space lists decisions; an architecture takes one option for each. Everything here is plain Python, so benchmarks,
black-box search and the command line's help load without torch.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

from archloom.core.errors import ParseError, SettingError, suggestion

MOST_NODES, MOST_CELLS, WIDEST = 64, 1000, 2**16  # beyond, a file asks for a network that nobody can build
NONE = "none"  # the option that connects nothing

Feature = tuple[tuple[str, str], ...]
"""Pairs of a decision and an option whose joint choice costs something."""

Scores = Mapping[str, Sequence[float]]
"""For each decision, one number per option, comparable between decisions (usually probabilities)."""
MOST_ENUMERATED = 10**6  # architectures that a space lists one by one


@dataclass(frozen=True)
class Decision:
    """One choice to make. Two places of a network that name the same decision share the choice.

    Attributes:
        name: the name, unique in its space.
        options: what can be chosen.

    Examples:
        >>> import archloom
        >>> archloom.Decision("layer0", ("conv_1x1", "conv_3x3")).index("conv_3x3")
        1
    """

    name: str
    options: tuple[str, ...]

    def index(self, option: str) -> int:
        """Return the position of an option."""
        return self.options.index(option)


class Architecture(Mapping[str, str]):
    """One option per decision: a frozen, hashable value.

    Args:
        choices: the option of each decision, by name.

    Examples:
        >>> import archloom
        >>> architecture = archloom.Architecture({"layer0": "conv_1x1", "layer1": "conv_3x3"})
        >>> architecture.with_option("layer0", "conv_3x3")
        Architecture({'layer0': 'conv_3x3', 'layer1': 'conv_3x3'})
    """

    __slots__ = ("_choices", "_hash")

    def __init__(self, choices: Mapping[str, str]) -> None:
        self._choices = dict(choices)
        self._hash = hash(frozenset(self._choices.items()))

    def __getitem__(self, name: str) -> str:
        return self._choices[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._choices)

    def __len__(self) -> int:
        return len(self._choices)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Architecture) and self._choices == other._choices

    def __repr__(self) -> str:
        return f"Architecture({self._choices})"

    def __reduce__(self) -> tuple[type[Architecture], tuple[dict[str, str]]]:
        return Architecture, (self._choices,)  # hashed anew: another process hashes strings differently

    def with_option(self, name: str, option: str) -> Architecture:
        """Return a copy with another option for one decision."""
        return Architecture({**self._choices, name: option})

    def to_json(self) -> str:
        """Return the choices as JSON text."""
        return json.dumps(self._choices)


@dataclass(frozen=True)
class CellGraph:
    """One cell of an architecture as a graph, for drawing and for analysis.

    Attributes:
        name: the name of the cell.
        inputs: names of the input states, numbered from 0.
        nodes: the number of states, inputs included.
        edges: (from, to, operation) of everything that is connected.
        outputs: the states that leave the cell.
        joined_by: how several of these become one: `concat` or `mean`.

    Examples:
        >>> import archloom
        >>> archloom.CellGraph("chain", ("input",), 2, ((0, 1, "conv_3x3"),), (1,)).edges
        ((0, 1, 'conv_3x3'),)
    """

    name: str
    inputs: tuple[str, ...]  # names of the input states, numbered 0, 1, ...
    nodes: int  # how many states there are, inputs included
    edges: tuple[tuple[int, int, str], ...]  # (from, to, operation); what is not connected is not listed
    outputs: tuple[int, ...]  # the states that leave the cell
    joined_by: str = "concat"  # or `mean`


@dataclass(frozen=True)
class CellNode:
    """A state of a cell that is the sum of edges, each with its own decision."""

    cell: str  # the name of the cell
    inputs: tuple[str, ...]  # the decisions on the edges that enter the node
    keeps_resolution: bool = True  # False in a cell that halves it


@dataclass(frozen=True, kw_only=True)
class SearchSpace(ABC):
    """What can be chosen. Subclasses are frozen dataclasses: their fields are their settings.

    A subclass implements `full_decisions`, `parse`, `format` and `graphs`, and names its `family` or its `network`.

    Args:
        kept: options of decisions that offer fewer than usual; `restrict` sets it.

    Examples:
        >>> import archloom, random
        >>> space = archloom.Nb201(nodes=3)
        >>> architecture = space.sample(random.Random(0))
        >>> space.parse(space.format(architecture)) == architecture
        True
    """

    kept: tuple[tuple[str, tuple[str, ...]], ...] = ()  # decisions with fewer options than usual, see `restrict`

    family: ClassVar[str]  # a name of `FAMILIES`, or `package.module:Class` of a plug-in
    network: ClassVar[str]  # instead of a family: `package.module:Class` of the network alone
    none_may_win: ClassVar[bool] = True  # in `decode`, where nothing else is asked for

    @abstractmethod
    def full_decisions(self) -> tuple[Decision, ...]:
        """Return all decisions with all their options."""

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """Return all decisions, each with the options that are kept."""
        kept = dict(self.kept)
        return tuple(Decision(d.name, kept.get(d.name, d.options)) for d in self.full_decisions())

    @cached_property
    def _by_name(self) -> dict[str, Decision]:
        return {decision.name: decision for decision in self.decisions}

    def decision(self, name: str) -> Decision:
        """Return the decision of a name."""
        return self._by_name[name]

    @property
    def cardinality(self) -> int:
        """Return how many architectures there are."""
        return math.prod(len(decision.options) for decision in self.decisions)

    # --- cells

    @property
    def cell_nodes(self) -> tuple[CellNode, ...]:
        """Return the nodes of the searched cells; none where a space is not made of cells."""
        return ()

    def unshare(self) -> tuple[Self, Mapping[str, str]]:
        """Return the space whose cells make their own choices, and the decision of this space behind each of its own.

        Where nothing is shared, or no such space exists, it is this space.
        """
        return self, {decision.name: decision.name for decision in self.decisions}

    # --- what choices cost, and which of them matter

    @property
    def widths(self) -> frozenset[str]:
        """Return the decisions that say how wide a layer is; their options are whole numbers as text."""
        return frozenset()

    def active(self, architecture: Architecture) -> frozenset[str]:
        """Return the decisions that make a difference to this architecture: not those within what it leaves out."""
        return frozenset(architecture)

    def operations_of(self, architecture: Mapping[str, str]) -> tuple[str, ...]:
        """Return the operations that an architecture has, by name; `none` where an edge may choose to be empty."""
        return tuple(one for one in architecture.values() if self.none_may_win or one != NONE)

    def cost_features(self, architecture: Architecture) -> tuple[Feature, ...]:
        """Return the features that a linear cost model sums: one for each group of decisions with a joint cost.

        A feature is there if and only if all its pairs are chosen. Here every decision is a group by itself.
        """
        return tuple(((decision.name, architecture[decision.name]),) for decision in self.decisions)

    # --- choosing

    def decode(self, scores: Scores, *, keep_none: bool | None = None) -> Architecture:
        """Return the architecture that scores favour: the best option of every decision.

        `keep_none` says whether `none` may win; None leaves it to the space's own rule.
        """
        return Architecture({d.name: self.best_option(d, scores, keep_none)[0] for d in self.decisions})

    def best_option(self, decision: Decision, scores: Scores, keep_none: bool | None = None) -> tuple[str, float]:
        """Return the option of the highest score and that score; the first one wins a tie."""
        values = scores[decision.name]
        if len(values) != len(decision.options) or any(math.isnan(value) for value in values):
            count = len(decision.options)
            raise SettingError(f"decision '{decision.name}' needs {count} numbers as scores, got {values}")
        allowed = self.none_may_win if keep_none is None else keep_none
        pairs = zip(decision.options, values, strict=True)
        candidates = [(option, value) for option, value in pairs if allowed or option != NONE]
        return max(candidates or [(NONE, -math.inf)], key=lambda pair: pair[1])

    def neighbours(self, scores: Scores, count: int, *, keep_none: bool | None = None) -> list[Architecture]:
        """Return what `decode` returns, and those that differ in one operation, the most probable change first.

        `none` is no operation: what is not connected stays so, and what is connected too.
        """
        derived = self.decode(scores, keep_none=keep_none)
        changes = []
        for decision in self.decisions:
            chosen, values = derived[decision.name], dict(zip(decision.options, scores[decision.name], strict=True))
            for option in decision.options:
                if NONE not in (chosen, option) and option != chosen:
                    favour = values[option] / values[chosen] if values[chosen] > 0 else 1.0
                    changes.append((favour, derived.with_option(decision.name, option)))
        changes.sort(key=lambda change: -change[0])  # stable: the earlier option wins a tie, as in `decode`
        return [derived, *(architecture for _, architecture in changes)][:count]

    def sample(self, rng: random.Random) -> Architecture:
        """Return an architecture drawn uniformly."""
        return Architecture({decision.name: rng.choice(decision.options) for decision in self.decisions})

    def mutate(self, parent: Architecture, rng: random.Random) -> Architecture:
        """Return the parent with one decision changed to another option."""
        undecided = [decision for decision in self.decisions if len(decision.options) > 1]
        if not undecided:  # a space of one architecture
            return parent
        decision = rng.choice(undecided)
        others = [option for option in decision.options if option != parent[decision.name]]
        return parent.with_option(decision.name, rng.choice(others))

    def restrict(self, kept: Mapping[str, Sequence[str]]) -> Self:
        """Return the same space with only these options left for the decisions named."""
        for name, options in kept.items():
            if name not in self._by_name:
                raise SettingError(f"unknown decision '{name}'{suggestion(name, self._by_name)}")
            unknown = [option for option in options if option not in self._by_name[name].options]
            if unknown or not options or len(set(options)) != len(options):
                raise SettingError(
                    f"decision '{name}' must keep some of {', '.join(self._by_name[name].options)}, got {list(options)}"
                )
        merged = {**dict(self.kept), **{name: tuple(options) for name, options in kept.items()}}
        return replace(self, kept=tuple(sorted(merged.items())))

    def enumerate(self) -> Iterator[Architecture]:
        """Return every architecture, the last decision changing fastest. For spaces small enough."""
        if self.cardinality > MOST_ENUMERATED:
            raise SettingError(f"{type(self).__name__} has {self.cardinality:.1e} architectures: too many to enumerate")
        if self.cardinality != math.prod(len(decision.options) for decision in self.decisions):
            raise SettingError(f"{type(self).__name__} must implement enumerate(): not every combination is allowed")
        return combine_options(self.decisions)

    # --- architectures to compare with, and dead operations

    def references(self) -> Mapping[str, Architecture]:
        """Return well-known architectures of this space by name: a search compares its result with them."""
        return {}

    def prune(self, architecture: Architecture) -> Architecture:
        """Return the architecture with `none` for every dead edge: one on no path from an input to an output.

        A decision is dead if `none` removes edges of the graphs and leaves their live edges as they are. An edge whose
        decision cannot be `none` stays.
        """
        pruned, live = architecture, self._live_edges(architecture)
        for decision in self.decisions:
            if pruned[decision.name] != NONE and NONE in self.allowed(decision):
                without = pruned.with_option(decision.name, NONE)
                if self._count_edges(without) < self._count_edges(pruned) and self._live_edges(without) == live:
                    pruned = without
        return pruned

    def canonical(self, architecture: Architecture) -> str:
        """Return a text that architectures share if they are known to be one network; here the text form."""
        return self.format(architecture)

    def _live_edges(self, architecture: Architecture) -> list[tuple[tuple[int, int, str], ...]]:
        from archloom.spaces.live_edges import find_live_edges  # late: it reads the graphs of this module

        return [find_live_edges(graph) for graph in self.graphs(architecture)]

    def _count_edges(self, architecture: Architecture) -> int:
        return sum(len(graph.edges) for graph in self.graphs(architecture))

    # --- reading and writing

    @abstractmethod
    def parse(self, text: str) -> Architecture:
        """Return the architecture that a text form describes. Text is parsed, never evaluated."""

    @abstractmethod
    def format(self, architecture: Architecture) -> str:
        """Return the text form that `parse` reads."""

    @abstractmethod
    def graphs(self, architecture: Architecture) -> tuple[CellGraph, ...]:
        """Return the cells of an architecture as graphs."""

    def allowed(self, decision: Decision) -> tuple[str, ...]:
        """Return the options that an architecture may have; a space may allow more than a supernet mixes."""
        return decision.options

    def check(self, architecture: Mapping[str, str]) -> Architecture:
        """Return the mapping as an architecture of this space, or a ParseError that names what is wrong."""
        missing = [name for name in self._by_name if name not in architecture]
        unknown = [name for name in architecture if name not in self._by_name]
        if missing or unknown:
            what = f"lacks decision '{missing[0]}'" if missing else f"has an unknown decision '{unknown[0]}'"
            raise ParseError(f"the architecture {what}; this space has {len(self.decisions)} decisions")
        for decision in self.decisions:
            option = architecture[decision.name]
            if option not in self.allowed(decision):
                raise ParseError(
                    f"decision '{decision.name}' has no option '{option}'{suggestion(str(option), decision.options)}"
                )
        return Architecture({decision.name: architecture[decision.name] for decision in self.decisions})

    def from_json(self, text: str) -> Architecture:
        """Return the architecture of a JSON text."""
        try:
            value: Any = json.loads(text)
        except (ValueError, RecursionError) as error:  # ValueError: bad syntax, or a number of too many digits
            raise ParseError(f"not JSON: {error}") from error
        if not isinstance(value, dict) or not all(isinstance(option, str) for option in value.values()):
            raise ParseError("an architecture in JSON is an object of strings: {decision: option, ...}")
        return self.check(value)


def combine_options(decisions: Sequence[Decision]) -> Iterator[Architecture]:
    """Yield every combination of options, the last decision changing fastest."""
    names = [decision.name for decision in decisions]
    for choice in itertools.product(*(decision.options for decision in decisions)):
        yield Architecture(dict(zip(names, choice, strict=True)))
