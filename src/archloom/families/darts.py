"""The DARTS family: cells that read the two cells before them, widening where resolution halves."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
from annotated_doc import Doc
from torch import Tensor, nn

from archloom.core.errors import require
from archloom.core.settings import Settings
from archloom.families.auxiliary import AuxiliaryHead
from archloom.families.base import Depth, Family, Size, Source
from archloom.families.cell_source import (
    INDENT,
    LINE,
    RELU_CONV_NORM,
    Cell,
    Edge,
    Modules,
    Operation,
    Operations,
    find_convolution,
    list_inside,
    render,
    write_definitions,
    write_node,
)
from archloom.families.regularization import DropoutRate, DropPathRate, check_rates, drop_edges, flatten
from archloom.fast.compiled_network import CompiledNetwork
from archloom.fast.network_plan import FeatureMap, NetworkPlanner, UnplannableError, describe_operation
from archloom.operations import (
    BARE_POOLS,
    DARTS_OPERATIONS,
    FactorizedReduce,
    FixedReduction,
    Make,
    Place,
    ReluConvNorm,
    make_operation,
)
from archloom.spaces import Architecture, Darts
from archloom.spaces.base import WIDEST
from archloom.spaces.darts import INPUTS, CellSlot
from archloom.supernet import Dag, Gates, Prediction, Resolve

FULL_DEPTH = 20  # cells of the networks that DARTS retrains
FULL_BLOCK = 6  # and cells per block of those of GDAS
FULL_WIDTH = 36  # channels of both
LARGE = 96  # pixels from which images get the stem that divides their resolution by eight


class DartsNetwork(nn.Module):
    """A stem, the stack of cells, a linear head; called with (images, gates)."""

    def __init__(
        self,
        space: Darts,
        resolve: Resolve,
        classes: int,
        colours: int,
        /,
        *,
        channels: Annotated[int, Doc("width of the first cells")] = 16,
        stem_multiplier: Annotated[int, Doc("the cifar stem is so many times wider")] = 3,
        stem: Annotated[
            Literal["cifar", "imagenet"], Doc("imagenet: two stems, which divide the resolution by 4 and by 8")
        ] = "cifar",
        normalized_pools: Annotated[
            bool, Doc("false: pools as they are, as in the published retrained networks")
        ] = True,
        auxiliary: Annotated[bool, Doc("a second head at two thirds of the cells, in training only")] = False,
        drop_path: DropPathRate = 0.0,
        dropout: DropoutRate = 0.0,
    ) -> None:
        super().__init__()
        require(
            {
                f"network.channels must lie in 1..{WIDEST}, got {channels}": 1 <= channels <= WIDEST,
                f"network.stem_multiplier must be at least 1, got {stem_multiplier}": stem_multiplier >= 1,
                f"network.stem must be cifar or imagenet, got {stem!r}": stem in ("cifar", "imagenet"),
                f"network.channels must be at least 2 with the imagenet stem, got {channels}": (
                    stem != "imagenet" or channels >= 2
                ),
                **check_rates(drop_path, dropout),
            }
        )
        operations = DARTS_OPERATIONS if normalized_pools else {**DARTS_OPERATIONS, **BARE_POOLS}
        width = channels if stem == "imagenet" else stem_multiplier * channels
        self.stem = _imagenet_stem(colours, width, resolve) if stem == "imagenet" else _stem(colours, width, resolve)
        self.second_stem = _halving(width, width, resolve) if stem == "imagenet" else None
        self.cells = nn.ModuleList()
        before, last = (width, False), (width, stem == "imagenet")  # channels of an input, and whether just reduced
        for slot in space.slots:
            channels = 2 * channels if slot.reduction else channels
            cell = DartsCell(
                space, slot, (before[0], last[0]), channels, resolve, reduced_before=last[1], operations=operations
            )
            self.cells.append(cell)
            before, last = last, (cell.channels_out, slot.reduction)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), flatten(dropout), nn.Linear(last[0], classes))
        self._auxiliary_after = 2 * len(space.slots) // 3
        self.auxiliary = (
            AuxiliaryHead(
                self.cells[self._auxiliary_after].channels_out,  # type: ignore[arg-type]
                classes,
                resolve.normalize,
                stride=2 if stem == "imagenet" else 3,
            )
            if auxiliary
            else None
        )
        drop_edges(self, drop_path)
        self.compiled = CompiledNetwork(self, self.describe)

    def forward(self, images: Tensor, gates: Gates | None = None) -> Tensor | Prediction:
        """Return the result along the paths that the gates open."""
        features = None if gates else self.compiled.run(images)
        if features is not None:
            return self._predict(self.head[1:](features.means), features.shown)
        before = self.stem(images)
        last = before if self.second_stem is None else self.second_stem(before)
        early: Tensor | None = None  # what the auxiliary head reads
        for position, cell in enumerate(self.cells):
            before, last = last, cell(before, last, gates)
            if position == self._auxiliary_after:
                early = last
        return self._predict(self.head(last), early)

    def _predict(self, logits: Tensor, early: Tensor | None) -> Tensor | Prediction:
        if self.auxiliary is None or not self.training:
            return logits
        return Prediction(logits, self.auxiliary(early))

    def describe(self, planner: NetworkPlanner) -> FeatureMap:
        """Write down everything before the last layer for the compiled executor."""
        if self.second_stem is not None:
            raise UnplannableError
        stem = planner.convolve(planner.images, self.stem[0], rectified=False)
        before = last = planner.add([planner.normalize(stem, self.stem[1])], like=stem)
        for position, cell in enumerate(self.cells):
            assert isinstance(cell, DartsCell)
            before, last = last, cell.describe(planner, before, last)
            if position == self._auxiliary_after and self.auxiliary is not None and self.training:
                planner.show(last)
        return last


def _stem(colours: int, width: int, resolve: Resolve) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(colours, width, 3, padding=1, bias=False), resolve.normalize(width))


def _imagenet_stem(colours: int, width: int, resolve: Resolve) -> nn.Sequential:
    """Return a stem that reduces to a quarter of the resolution, in two steps."""
    first = nn.Conv2d(colours, width // 2, 3, stride=2, padding=1, bias=False)
    return nn.Sequential(first, resolve.normalize(width // 2), *_halving(width // 2, width, resolve))


def _halving(channels: int, width: int, resolve: Resolve) -> ReluConvNorm:
    return ReluConvNorm(Place(channels, width, 2, resolve.normalize), kernel=3)


class DartsCell(nn.Module):
    """Both inputs brought to one width, then the searched graph (or the fixed reduction), its nodes concatenated."""

    def __init__(
        self,
        space: Darts,
        slot: CellSlot,
        channels_in: tuple[int, int],
        channels: int,
        resolve: Resolve,
        *,
        reduced_before: bool,
        operations: Mapping[str, Make] = DARTS_OPERATIONS,
    ) -> None:
        super().__init__()
        first = Place(channels_in[0], channels, 2 if reduced_before else 1, resolve.normalize)
        second = Place(channels_in[1], channels, 1, resolve.normalize)
        self.first = FactorizedReduce(first) if reduced_before else ReluConvNorm(first, kernel=1)
        self.second = ReluConvNorm(second, kernel=1)
        self.fixed = FixedReduction(channels, resolve.normalize) if slot.fixed else None
        self.dag = None if slot.fixed else _graph(space, slot, channels, resolve, operations)
        self.channels_out = channels * (4 if slot.fixed else space.nodes)

    def forward(self, before: Tensor, last: Tensor, gates: Gates | None) -> Tensor:
        """Return the result along the paths that the gates open."""
        inputs = [self.first(before), self.second(last)]
        if self.dag is None:
            assert self.fixed is not None
            reduced: Tensor = self.fixed(*inputs)
            return reduced
        nodes: list[Tensor] = self.dag(inputs, gates)
        return torch.cat(nodes, dim=1)

    def describe(self, planner: NetworkPlanner, before: FeatureMap, last: FeatureMap) -> FeatureMap:
        """Write down the cell for the compiled executor."""
        if self.dag is None:
            raise UnplannableError
        terms = (describe_operation(planner, *pair) for pair in ((self.first, before), (self.second, last)))
        inputs = [planner.add([term], like=term.source) for term in terms]
        return self.dag.describe_concatenation(planner, inputs)


def _graph(space: Darts, slot: CellSlot, channels: int, resolve: Resolve, operations: Mapping[str, Make]) -> Dag:
    edges = [(source, INPUTS + node) for node in range(space.nodes) for source in space.sources(node)]
    strides = {edge: 2 if slot.reduction and edge[0] < INPUTS else 1 for edge in edges}

    def module(edge: tuple[int, int]) -> nn.Module:
        place = Place(channels, channels, strides[edge], resolve.normalize)
        decision = space.decision(space.edge_name(slot.name, edge[0], edge[1] - INPUTS))
        return resolve.edge(decision, place, partial(make_operation, operations))

    return Dag({edge: module(edge) for edge in edges}, strides, outputs=range(INPUTS, INPUTS + space.nodes))


class DartsFamily(Family[Darts]):
    """Stacks of two cells, or of as many as there are positions."""

    network = DartsNetwork
    sizes: ClassVar = [
        Size({"cells": depth, "cells_per_block": 0}, {"channels": width})
        for depth, width in ((5, 6), (5, 12), (8, 12), (8, 16), (8, 24), (14, 24), (20, 36))
    ]
    depth_settings = ("cells_per_block", "cells")

    def has_fixed_depth(self, space: Darts) -> bool:
        return space.sharing == "none"  # every cell has decisions of its own

    def depth_of(self, space: Darts) -> Depth:
        return Depth(len(space.slots), "cells")

    def at_full_depth(self, space: Darts) -> Darts:
        if self.has_fixed_depth(space):
            return space
        if space.cells_per_block:
            return replace(space, cells_per_block=max(FULL_BLOCK, space.cells_per_block))
        return replace(space, cells=max(FULL_DEPTH, space.cells))

    def final_size(self, space: Darts) -> Size:
        full = self.at_full_depth(space)
        return Size({"cells": full.cells, "cells_per_block": full.cells_per_block}, {"channels": FULL_WIDTH})

    def stem_for(self, space: Darts, side: int) -> Settings:
        return {"stem": "imagenet"} if side >= LARGE else {}

    def source(self, space: Darts, architecture: Architecture, network: nn.Module, settings: Settings) -> Source:
        imagenet = settings.get("stem") == "imagenet"
        operations = {**SOURCES, **BARE_POOL_SOURCES} if settings.get("normalized_pools") is False else SOURCES
        kinds, placed = _write_cells(space, architecture, operations)
        halving = imagenet or any(slot.reduction for slot in space.slots)
        used = {operations[edge.option].class_name for cell in kinds for edge in cell.edges if not edge.is_identity}
        used |= {FIXED for name in placed if name == FIXED} | ({"FactorizedReduce"} if halving else set())
        entrance = find_convolution(network, "cells.0.second.1")
        context = {
            "used": used,
            "nodes": space.nodes,
            "halving": halving,
            "kinds": kinds,
            "layout": _write_layout(placed),
            "cells": len(placed),
            "imagenet": imagenet,
            "stem": entrance.in_channels,
            "channels": entrance.out_channels,
            "colours": find_convolution(network, "stem.0").in_channels,
        }
        modules = {"stem_conv": "stem.0", "stem_norm": "stem.1", "classifier": "head.2"}
        if imagenet:
            modules |= {"stem_half.conv": "stem.3", "stem_half.norm": "stem.4"}
            modules |= list_inside("stem_last", "second_stem", RELU_CONV_NORM)
        by_name, halve = {cell.name: cell for cell in kinds}, imagenet
        for position, (slot, name) in enumerate(zip(space.slots, placed, strict=True)):
            own = f"cells.{position}"
            modules |= list_inside(f"{own}.before", f"{own}.first", REDUCE if halve else RELU_CONV_NORM)
            modules |= list_inside(f"{own}.last", f"{own}.second", RELU_CONV_NORM)
            if name == FIXED:
                modules |= _list_fixed_reduction(own, f"{own}.fixed")
            else:
                modules |= by_name[name].list_modules(own, f"{own}.dag.edges", operations)
            halve = slot.reduction
        return Source(render("darts.jinja", context), modules, imports=("import math",) if FIXED in used else ())


FIXED = "FixedReductionCell"
DEPTHWISE = {"depthwise": "1", "pointwise": "2", "norm": "3"}
SEPARABLE = {
    f"{own}.{part}": f"{position}.{theirs}"
    for position, own in enumerate(("first", "second"))
    for part, theirs in DEPTHWISE.items()
}
REDUCE = {"even": "even", "odd": "odd", "norm": "normalize"}
POOL = {"norm": "1"}
STRIP = {"rows": "1", "columns": "2", "strip_norm": "3", "pointwise": "5", "norm": "6"}

SOURCES = {
    "max_pool_3x3": Operation("MaxPool(channels{stride})", POOL),
    "avg_pool_3x3": Operation("AvgPool(channels{stride})", POOL),
    "skip_connect": Operation("FactorizedReduce(channels, channels)", REDUCE),  # only where the resolution halves
    "sep_conv_3x3": Operation("SeparableConv(channels, 3{stride})", SEPARABLE),
    "sep_conv_5x5": Operation("SeparableConv(channels, 5{stride})", SEPARABLE),
    "dil_conv_3x3": Operation("DepthwiseConv(channels, 3{stride}, dilation=2)", DEPTHWISE),
    "dil_conv_5x5": Operation("DepthwiseConv(channels, 5{stride}, dilation=2)", DEPTHWISE),
}
BARE_POOL_SOURCES = {
    "max_pool_3x3": Operation("nn.MaxPool2d(3, {number}, padding=1)"),
    "avg_pool_3x3": Operation("nn.AvgPool2d(3, {number}, padding=1, count_include_pad=False)"),
}
_CELL_NAMES = {"normal": "NormalCell", "reduce": "ReductionCell"}


def _write_cells(space: Darts, architecture: Architecture, operations: Operations) -> tuple[list[Cell], list[str]]:
    """Return the different cells there are, and the names of those that the network stacks."""
    graphs = {graph.name: graph for graph in space.graphs(architecture)}
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
            known[edges, slot.reduction] = _write_cell(name, edges, space, operations, reduction=slot.reduction)
        placed.append(known[edges, slot.reduction].name)
    return list(known.values()), placed


def _write_cell(name: str, edges: tuple[Edge, ...], space: Darts, operations: Operations, *, reduction: bool) -> Cell:
    nodes = range(INPUTS, INPUTS + space.nodes)
    zeros = "torch.zeros_like(x0[:, :, ::2, ::2])" if reduction else "torch.zeros_like(x0)"
    sums = [line for node in nodes for line in write_node(edges, node, zeros=zeros)]
    read = {edge.source for edge in edges} | ({0} if {*nodes} - {edge.target for edge in edges} else set())
    inputs = [f"x{state} = self.{own}({own})" for state, own in enumerate(("before", "last")) if state in read]
    states = ", ".join(f"x{node}" for node in nodes)
    last = [f"return torch.cat([{states}], dim=1)"]
    if len(last[0]) > LINE - INDENT:
        last = [f"states = [{states}]", "return torch.cat(states, dim=1)"]
    return Cell(name, reduction, edges, write_definitions(edges, operations), [*inputs, *sums, *last])


def _write_layout(placed: Sequence[str]) -> str:
    """Return the stack of cells as source; repetitions are a product."""
    runs = [(name, len(list(run))) for name, run in itertools.groupby(placed)]
    if len(runs) == 1:
        return f"CELLS = [{placed[0]}] * {len(placed)}"
    lines = [f"    {name}," if count == 1 else f"    *[{name}] * {count}," for name, count in runs]
    return "\n".join(["CELLS = [", *lines, "]"])


def _list_fixed_reduction(own: str, theirs: str) -> Modules:
    modules: Modules = {}
    for side in range(INPUTS):
        modules |= list_inside(f"{own}.strip_{side}", f"{theirs}.convolutions.{side}", STRIP)
        modules[f"{own}.pool_norm_{side}"] = f"{theirs}.pools.{side}.1"
    return modules
