"""Export as source: one readable file of plain PyTorch for one architecture, with its weights beside it.

The file needs nothing of archloom, today or in ten years. It is written as a person would write this one network: cells
that compute line by line what was found, only the operations that are used, names that say what they are. The templates
beside this module are the parts that do not depend on the architecture. What comes from a model file gets into the
source as a quoted literal only, so that no name of a class can become code.
"""

from __future__ import annotations

import importlib.util
import itertools
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
from safetensors.torch import save
from torch import Tensor, nn

from archloom.core.errors import SettingError
from archloom.core.files import write_atomically, writing
from archloom.export.deployed import Deployed, Predict, largest_difference, version
from archloom.retrainings.model_file import ModelCard
from archloom.spaces import NONE, Darts, Nb201
from archloom.spaces.darts import INPUTS

SOURCE, WEIGHTS = "model.py", "model.safetensors"
TOLERANCE = 1e-6  # relative: the same operations of the same library
LINE = 88  # characters, the usual default of formatters
INDENT = 8  # of a method's body
MODES = {1: "L", 3: "RGB"}  # of pictures, by channels

Names = dict[str, str]  # of modules: here, and in the network of archloom


def export_standalone(model: Deployed, folder: Path) -> tuple[list[Path], float]:
    """Write `model.py` and `model.safetensors`; returns their paths and the largest difference from torch."""
    written = write_standalone(model)
    weights = save(written.weights)
    with writing(folder), tempfile.TemporaryDirectory() as trial:
        for name, content in ((SOURCE, written.source.encode()), (WEIGHTS, weights)):
            (Path(trial) / name).write_bytes(content)
        difference = largest_difference(model, _loaded(Path(trial) / SOURCE), what="standalone", tolerance=TOLERANCE)
    paths = [folder / WEIGHTS, folder / SOURCE]  # weights first: a source without them would be of no use
    for path, content in zip(paths, (weights, written.source.encode()), strict=True):
        write_atomically(path, content)
    return paths, difference


@dataclass(frozen=True)
class Standalone:
    """A network as source, and its weights by the names that the source gives them."""

    source: str
    weights: dict[str, Tensor]


def write_standalone(model: Deployed) -> Standalone:
    """The source and the weights, not checked yet."""
    space = model.card.search_space()
    if space.network not in WRITERS:
        raise SettingError(
            f"a standalone model can be written for the families of nb201 and darts, not for {type(space).__name__}; "
            "other formats can be exported"
        )
    template, context, names = WRITERS[space.network](model.card, model.network)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("archloom.export", "."),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    source = environment.get_template(template).render({**_common(model.card), **context})
    weights = {
        f"{own}.{key}": tensor.detach().clone().contiguous()
        for own, theirs in names.items()
        for key, tensor in model.network.get_submodule(theirs).state_dict().items()
    }
    return Standalone(source, weights)


def _loaded(source: Path) -> Predict:
    """The model of a file that was just written, imported as its user will import it."""
    spec = importlib.util.spec_from_file_location("archloom_standalone_model", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    predict: Predict = module.load()
    return predict


# --- what every file has


def _common(card: ModelCard) -> dict[str, Any]:
    channels, height, width = card.image_shape
    return {
        "title": f"A classifier of {len(card.classes)} kinds of images, in plain PyTorch.",
        "text": textwrap.wrap(card.text, LINE - 8, break_long_words=False, break_on_hyphens=False),
        "facts": _facts(card),
        "classes": _tuple("CLASSES", map(quoted, card.classes)),
        "mean": _tuple("MEAN", map(repr, card.mean)),
        "std": _tuple("STD", map(repr, card.std)),
        "mode": MODES.get(channels),
        "colours": channels,
        "height": height,
        "square": card.square,
        "width": width,
    }


def _facts(card: ModelCard) -> list[str]:
    channels, height, width = card.image_shape
    lines = [f"Found and trained with archloom {version()}."]
    accuracy = card.details.get("test_accuracy")
    if isinstance(accuracy, int | float):
        lines += [f"Accuracy on test images: {accuracy:.2f} %."]
    return [*lines, f"It takes images [batch, {channels}, {height}, {width}] with values in 0..1."]


def _tuple(name: str, items: Iterable[str]) -> str:
    """An assignment of a tuple: in one line if it fits, else with an item on each."""
    listed = list(items)
    line = f"{name} = ({', '.join(listed)}{',' if len(listed) == 1 else ''})"
    if len(line) <= LINE:
        return line
    return "\n".join([f"{name} = (", *(f"    {item}," for item in listed), ")"])


def quoted(text: str) -> str:
    """Text as a literal that means exactly this text; in double quotes, unless single ones need fewer escapes."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    escaped = "".join(_escaped(character) for character in text.replace("\\", "\\\\"))
    return quote + escaped.replace(quote, f"\\{quote}") + quote


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return repr(character)[1:-1]  # control characters, line breaks of any kind, halves of surrogate pairs


# --- cells


@dataclass(frozen=True)
class Operation:
    """How an operation is written: the call that makes it, and its modules that have weights, here and in archloom."""

    written: str  # {stride} stands for an argument that is left out where it is 1, {number} for the number
    parts: Names = field(default_factory=dict)

    def call(self, stride: int) -> str:
        return self.written.format(stride=f", stride={stride}" if stride > 1 else "", number=stride)

    @property
    def kind(self) -> str:
        """The class that is called."""
        return self.written.partition("(")[0]


RELU_CONV_NORM = {"conv": "1", "norm": "2"}
DEPTHWISE = {"depthwise": "1", "pointwise": "2", "norm": "3"}
SEPARABLE = {
    f"{own}.{part}": f"{position}.{theirs}"
    for position, own in enumerate(("first", "second"))
    for part, theirs in DEPTHWISE.items()
}
REDUCE = {"even": "even", "odd": "odd", "norm": "normalize"}
POOL = {"norm": "1"}
STRIP = {"rows": "1", "columns": "2", "strip_norm": "3", "pointwise": "5", "norm": "6"}

NB201_OPERATIONS = {
    "nor_conv_1x1": Operation("ReluConvNorm(channels, channels, 1)", RELU_CONV_NORM),
    "nor_conv_3x3": Operation("ReluConvNorm(channels, channels, 3)", RELU_CONV_NORM),
    "avg_pool_3x3": Operation("nn.AvgPool2d(3, 1, padding=1, count_include_pad=False)"),
}
DARTS_OPERATIONS = {
    "max_pool_3x3": Operation("MaxPool(channels{stride})", POOL),
    "avg_pool_3x3": Operation("AvgPool(channels{stride})", POOL),
    "skip_connect": Operation("FactorizedReduce(channels, channels)", REDUCE),  # only where the resolution halves
    "sep_conv_3x3": Operation("SeparableConv(channels, 3{stride})", SEPARABLE),
    "sep_conv_5x5": Operation("SeparableConv(channels, 5{stride})", SEPARABLE),
    "dil_conv_3x3": Operation("DepthwiseConv(channels, 3{stride}, dilation=2)", DEPTHWISE),
    "dil_conv_5x5": Operation("DepthwiseConv(channels, 5{stride}, dilation=2)", DEPTHWISE),
}
BARE_POOLS = {
    "max_pool_3x3": Operation("nn.MaxPool2d(3, {number}, padding=1)"),
    "avg_pool_3x3": Operation("nn.AvgPool2d(3, {number}, padding=1, count_include_pad=False)"),
}
SHORT = {"nor_conv_1x1": "conv1x1", "nor_conv_3x3": "conv3x3"}  # so that three of them fit in a line


@dataclass(frozen=True)
class Edge:
    """One operation of a cell."""

    source: int
    target: int
    option: str
    stride: int = 1

    @property
    def passes(self) -> bool:
        """Whether it hands on the state as it is."""
        return self.option == "skip_connect" and self.stride == 1

    @property
    def name(self) -> str:
        return f"{SHORT.get(self.option, self.option)}_{self.source}_{self.target}"

    @property
    def term(self) -> str:
        return f"x{self.source}" if self.passes else f"self.{self.name}(x{self.source})"


@dataclass(frozen=True)
class Cell:
    """A cell as lines of source."""

    name: str
    reduction: bool
    edges: tuple[Edge, ...]
    made: list[str]
    computed: list[str]

    def names(self, own: str, theirs: str, operations: Mapping[str, Operation]) -> Names:
        """Its modules that have weights, for one cell of a network."""
        return {
            f"{own}.{edge.name}.{part}": f"{theirs}.{edge.source}->{edge.target}.candidates.{edge.option}.{inside}"
            for edge in self.edges
            if not edge.passes
            for part, inside in operations[edge.option].parts.items()
        }


def _made(edges: Sequence[Edge], operations: Mapping[str, Operation]) -> list[str]:
    """The lines that make the operations of a cell."""
    return [f"self.{edge.name} = {operations[edge.option].call(edge.stride)}" for edge in edges if not edge.passes]


def _computed(edges: Sequence[Edge], node: int, *, zeros: str, result: str = "") -> list[str]:
    """The lines that add up what a node reads."""
    terms = [edge.term for edge in edges if edge.target == node] or [zeros]
    result = result or f"x{node} ="
    line = f"{result} {' + '.join(terms)}"
    if len(line) <= LINE - INDENT:
        return [line]
    return [f"{result} (", f"    {terms[0]}", *(f"    + {term}" for term in terms[1:]), ")"]


def _needed(edges: Sequence[Edge], output: int) -> tuple[list[Edge], list[int]]:
    """The edges and the nodes that the output depends on."""
    wanted = {output}
    for edge in sorted(edges, key=lambda edge: -edge.target):
        if edge.target in wanted:
            wanted.add(edge.source)
    return [edge for edge in edges if edge.target in wanted], sorted(wanted - {0})


# --- NAS-Bench-201


def _nb201(card: ModelCard, network: nn.Module) -> tuple[str, dict[str, Any], Names]:
    space, architecture = card.search_space(), card.checked_architecture()
    assert isinstance(space, Nb201)
    chosen = [Edge(*edge, architecture[f"{edge[0]}->{edge[1]}"]) for edge in space.edges]
    output = space.nodes - 1
    edges, nodes = _needed([edge for edge in chosen if edge.option != NONE], output)
    computed = [
        line
        for node in nodes
        for line in _computed(edges, node, zeros="torch.zeros_like(x0)", result="return" if node == output else "")
    ]
    cell = Cell("Cell", False, tuple(edges), _made(edges, NB201_OPERATIONS), computed)
    names = {"stem_conv": "stem.0", "stem_norm": "stem.1", "head_norm": "head.0", "classifier": "head.4"}
    cells = space.cells_per_stage
    for stage in range(3):
        first = stage * (cells + 1)
        for number in range(cells):
            names |= cell.names(f"stage{stage + 1}.{number}", f"blocks.{first + number}.dag.edges", NB201_OPERATIONS)
        if stage < 2:
            names |= _residual(f"reduction{stage + 1}", f"blocks.{first + cells}")
    context = {"used": set[str](), "cell": cell, "cells": cells, "stem": _convolution(network, "stem.0").out_channels}
    return "nb201.jinja", context, names


def _convolution(network: nn.Module, name: str) -> nn.Conv2d:
    module = network.get_submodule(name)
    assert isinstance(module, nn.Conv2d)
    return module


def _residual(own: str, theirs: str) -> Names:
    names = {f"{own}.shortcut": f"{theirs}.shortcut.1"}
    for position, part in enumerate(("first", "second")):
        names |= _inside(f"{own}.{part}", f"{theirs}.main.{position}", RELU_CONV_NORM)
    return names


def _inside(own: str, theirs: str, parts: Names) -> Names:
    return {f"{own}.{part}": f"{theirs}.{inside}" for part, inside in parts.items()}


# --- the DARTS family


def _darts(card: ModelCard, network: nn.Module) -> tuple[str, dict[str, Any], Names]:
    space = card.search_space()
    assert isinstance(space, Darts)
    imagenet = card.network.get("stem") == "imagenet"
    bare = card.network.get("normalized_pools") is False
    operations = {**DARTS_OPERATIONS, **BARE_POOLS} if bare else DARTS_OPERATIONS
    kinds, placed = _darts_cells(card, space, operations)
    halving = imagenet or any(slot.reduction for slot in space.slots)
    used = {operations[edge.option].kind for cell in kinds for edge in cell.edges if not edge.passes}
    used |= {FIXED for name in placed if name == FIXED} | ({"FactorizedReduce"} if halving else set())
    entrance = _convolution(network, "cells.0.second.1")
    context = {
        "used": used,
        "nodes": space.nodes,
        "halving": halving,
        "kinds": kinds,
        "layout": _layout(placed),
        "cells": len(placed),
        "imagenet": imagenet,
        "stem": entrance.in_channels,
        "channels": entrance.out_channels,
    }
    by_name = {cell.name: cell for cell in kinds}
    names = {"stem_conv": "stem.0", "stem_norm": "stem.1", "classifier": "head.2"}
    if imagenet:
        names |= {"stem_half.conv": "stem.3", "stem_half.norm": "stem.4"}
        names |= _inside("stem_last", "second_stem", RELU_CONV_NORM)
    halve = imagenet
    for position, (slot, name) in enumerate(zip(space.slots, placed, strict=True)):
        own = theirs = f"cells.{position}"
        names |= _inside(f"{own}.before", f"{theirs}.first", REDUCE if halve else RELU_CONV_NORM)
        names |= _inside(f"{own}.last", f"{theirs}.second", RELU_CONV_NORM)
        if name == FIXED:
            names |= _fixed_reduction(own, f"{theirs}.fixed")
        else:
            names |= by_name[name].names(own, f"{theirs}.dag.edges", operations)
        halve = slot.reduction
    return "darts.jinja", context, names


FIXED = "FixedReductionCell"
_CELL_NAMES = {"normal": "NormalCell", "reduce": "ReductionCell"}


def _darts_cells(card: ModelCard, space: Darts, operations: Mapping[str, Operation]) -> tuple[list[Cell], list[str]]:
    """The different cells there are, and the names of those that the network stacks."""
    graphs = {graph.name: graph for graph in space.graphs(card.checked_architecture())}
    known: dict[tuple[tuple[Edge, ...], bool], Cell] = {}
    placed = []
    for slot in space.slots:
        if slot.fixed:
            placed.append(FIXED)
            continue
        edges = tuple(
            Edge(source, target, option, 2 if slot.reduction and source < INPUTS else 1)
            for source, target, option in graphs[slot.name].edges
        )
        if (edges, slot.reduction) not in known:
            name = _CELL_NAMES.get(slot.name, slot.name.capitalize())
            known[edges, slot.reduction] = _darts_cell(name, edges, space, operations, reduction=slot.reduction)
        placed.append(known[edges, slot.reduction].name)
    return list(known.values()), placed


def _darts_cell(
    name: str, edges: tuple[Edge, ...], space: Darts, operations: Mapping[str, Operation], *, reduction: bool
) -> Cell:
    nodes = range(INPUTS, INPUTS + space.nodes)
    zeros = "torch.zeros_like(x0[:, :, ::2, ::2])" if reduction else "torch.zeros_like(x0)"
    computed = [line for node in nodes for line in _computed(edges, node, zeros=zeros)]
    read = {edge.source for edge in edges} | ({0} if {*nodes} - {edge.target for edge in edges} else set())
    inputs = [f"x{state} = self.{own}({own})" for state, own in enumerate(("before", "last")) if state in read]
    lines = [*inputs, *computed, *_concatenated(", ".join(f"x{node}" for node in nodes))]
    return Cell(name, reduction, edges, _made(edges, operations), lines)


def _concatenated(states: str) -> list[str]:
    line = f"return torch.cat([{states}], dim=1)"
    return [line] if len(line) <= LINE - INDENT else [f"states = [{states}]", "return torch.cat(states, dim=1)"]


def _layout(placed: Sequence[str]) -> str:
    """The stack of cells, those that repeat as a product."""
    runs = [(name, len(list(run))) for name, run in itertools.groupby(placed)]
    if len(runs) == 1:
        return f"CELLS = [{placed[0]}] * {len(placed)}"
    lines = [f"    {name}," if count == 1 else f"    *[{name}] * {count}," for name, count in runs]
    return "\n".join(["CELLS = [", *lines, "]"])


def _fixed_reduction(own: str, theirs: str) -> Names:
    names: Names = {}
    for side in range(INPUTS):
        names |= _inside(f"{own}.strip_{side}", f"{theirs}.convolutions.{side}", STRIP)
        names[f"{own}.pool_norm_{side}"] = f"{theirs}.pools.{side}.1"
    return names


Writer = Callable[[ModelCard, nn.Module], tuple[str, dict[str, Any], Names]]
WRITERS: Mapping[str, Writer] = {Nb201.network: _nb201, Darts.network: _darts}
