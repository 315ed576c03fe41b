"""Write the source of a family's network: cells as lines of Python, and the jinja templates beside this module.

A model is written as a person would write this one network: cells that compute line by line what was found, only the
operations that are used, names that say what they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import jinja2
from torch import nn

from archloom.families.base import SKIP

LINE = 88  # characters, the usual default of formatters
INDENT = 8  # of a method's body

Modules = dict[str, str]  # names of modules with weights: in the source, and in the network of archloom

RELU_CONV_NORM = {"conv": "1", "norm": "2"}


def render(template: str, context: Mapping[str, object]) -> str:
    """Fill in a template of this folder."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("archloom.families", "."),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(context).strip("\n")


@dataclass(frozen=True)
class Operation:
    """How an operation is written: the call that makes it, and its modules that have weights."""

    expression: str  # {stride} stands for an argument that is left out where it is 1, {number} for the number
    parts: Modules = field(default_factory=dict)

    def call(self, stride: int) -> str:
        """Return the expression that makes the operation."""
        return self.expression.format(stride=f", stride={stride}" if stride > 1 else "", number=stride)

    @property
    def class_name(self) -> str:
        """Return the class that is called."""
        return self.expression.partition("(")[0]


Operations = Mapping[str, Operation]

SHORT = {"nor_conv_1x1": "conv1x1", "nor_conv_3x3": "conv3x3"}  # three of them fit in a line


@dataclass(frozen=True)
class Edge:
    """One operation of a cell."""

    source: int
    target: int
    option: str
    stride: int = 1

    @property
    def is_identity(self) -> bool:
        """Return whether the edge passes the state on unchanged."""
        return self.option == SKIP and self.stride == 1

    @property
    def name(self) -> str:
        """Return the attribute name of the edge in the generated source."""
        return f"{SHORT.get(self.option, self.option)}_{self.source}_{self.target}"

    @property
    def term(self) -> str:
        """Return the expression that a node adds up."""
        return f"x{self.source}" if self.is_identity else f"self.{self.name}(x{self.source})"


@dataclass(frozen=True)
class Cell:
    """A cell as lines of source."""

    name: str
    reduction: bool
    edges: tuple[Edge, ...]
    definitions: list[str]
    statements: list[str]

    def list_modules(self, own: str, theirs: str, operations: Operations) -> Modules:
        """Return the modules with weights of one cell of the network."""
        return {
            f"{own}.{edge.name}.{part}": f"{theirs}.{edge.source}->{edge.target}.candidates.{edge.option}.{inside}"
            for edge in self.edges
            if not edge.is_identity
            for part, inside in operations[edge.option].parts.items()
        }


def write_definitions(edges: Iterable[Edge], operations: Operations) -> list[str]:
    """Return the lines that make the operations of a cell."""
    return [f"self.{edge.name} = {operations[edge.option].call(edge.stride)}" for edge in edges if not edge.is_identity]


def write_sum(terms: Sequence[str], result: str) -> list[str]:
    """Return the statement that adds up terms, on several lines where it is long; `result` is `x1 =` or `return`."""
    line = f"{result} {' + '.join(terms)}"
    if len(line) <= LINE - INDENT:
        return [line]
    return [f"{result} (", f"    {terms[0]}", *(f"    + {term}" for term in terms[1:]), ")"]


def write_node(edges: Iterable[Edge], node: int, *, zeros: str, result: str = "") -> list[str]:
    """Return the statement that computes a node; `zeros` is its value where nothing leads to it."""
    terms = [edge.term for edge in edges if edge.target == node] or [zeros]
    return write_sum(terms, result or f"x{node} =")


def find_needed(edges: Sequence[Edge], output: int) -> tuple[list[Edge], list[int]]:
    """Return the edges and the nodes that the output depends on."""
    needed = {output}
    for edge in sorted(edges, key=lambda edge: -edge.target):
        if edge.target in needed:
            needed.add(edge.source)
    return [edge for edge in edges if edge.target in needed], sorted(needed - {0})


def list_inside(own: str, theirs: str, parts: Modules) -> Modules:
    """Return the modules inside one module of both networks."""
    return {f"{own}.{part}": f"{theirs}.{inside}" for part, inside in parts.items()}


def find_convolution(network: nn.Module, name: str) -> nn.Conv2d:
    """Return a convolution of a network."""
    module = network.get_submodule(name)
    assert isinstance(module, nn.Conv2d)
    return module
