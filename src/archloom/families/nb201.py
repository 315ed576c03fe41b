"""The family of NAS-Bench-201: a stem, three stages of equal cells with residual blocks between, a linear head."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, ClassVar

from annotated_doc import Doc
from torch import Tensor, nn

from archloom.core.errors import require
from archloom.core.settings import Settings
from archloom.families.auxiliary import AuxiliaryHead
from archloom.families.base import Depth, Family, Size, Source
from archloom.families.cell_source import (
    RELU_CONV_NORM,
    Cell,
    Edge,
    Modules,
    Operation,
    find_convolution,
    find_needed,
    list_inside,
    render,
    write_definitions,
    write_node,
)
from archloom.families.regularization import DropoutRate, DropPathRate, check_rates, drop_edges, flatten
from archloom.fast.compiled_network import CompiledNetwork
from archloom.fast.network_plan import FeatureMap, NetworkPlanner, UnplannableError, describe_operation
from archloom.operations import NB201_OPERATIONS, Place, ReluConvNorm, make_operation
from archloom.spaces import NONE, Architecture, Nb201
from archloom.spaces.base import WIDEST
from archloom.supernet import Dag, Gates, Prediction, Resolve

STAGES = 3
FULL_DEPTH = 5  # cells per stage of the networks in the published table
FULL_WIDTH = 16  # channels of their first stage


class Nb201Network(nn.Module):
    """Cells at `channels`, twice and four times that; called with (images, gates)."""

    def __init__(
        self,
        space: Nb201,
        resolve: Resolve,
        classes: int,
        colours: int,
        /,
        *,
        channels: Annotated[int, Doc("width of the first stage")] = 16,
        auxiliary: Annotated[bool, Doc("a second head where the third stage begins, in training only")] = False,
        drop_path: DropPathRate = 0.0,
        dropout: DropoutRate = 0.0,
    ) -> None:
        super().__init__()
        require(
            {
                f"network.channels must lie in 1..{WIDEST}, got {channels}": 1 <= channels <= WIDEST,
                **check_rates(drop_path, dropout),
            },
        )
        self.stem = nn.Sequential(nn.Conv2d(colours, channels, 3, padding=1, bias=False), resolve.normalize(channels))
        self.blocks = nn.ModuleList()
        for stage in range(STAGES):
            width = channels * 2**stage
            if stage > 0:
                self.blocks.append(ResidualReduction(width // 2, width, resolve))
            self.blocks.extend(Nb201Cell(space, width, resolve) for _ in range(space.cells_per_stage))
        self.head = nn.Sequential(
            resolve.normalize(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), flatten(dropout), nn.Linear(width, classes)
        )
        self._auxiliary_after = 2 * len(self.blocks) // 3
        self.auxiliary = AuxiliaryHead(width, classes, resolve.normalize) if auxiliary else None
        drop_edges(self, drop_path)
        self.compiled = CompiledNetwork(self, self.describe, rectified=True)

    def forward(self, images: Tensor, gates: Gates | None = None) -> Tensor | Prediction:
        """Return the result along the paths that the gates open."""
        features = None if gates else self.compiled.run(images)
        if features is not None:
            return self.head[3:](features.means)  # type: ignore[no-any-return]
        x = self.stem(images)
        early: Tensor | None = None  # what the auxiliary head reads
        for position, block in enumerate(self.blocks):
            x = block(x, gates)
            if position == self._auxiliary_after:
                early = x
        logits: Tensor = self.head(x)
        if self.auxiliary is None or not self.training:
            return logits
        return Prediction(logits, self.auxiliary(early))

    def describe(self, planner: NetworkPlanner) -> FeatureMap:
        """Write down everything before the last layer for the compiled executor."""
        if self.auxiliary is not None:
            raise UnplannableError
        stem = planner.convolve(planner.images, self.stem[0], rectified=False)
        x = planner.add([planner.normalize(stem, self.stem[1])], like=stem)
        for block in self.blocks:
            assert isinstance(block, Nb201Cell | ResidualReduction)
            x = block.describe(planner, x)
        return planner.add([planner.normalize(planner.copy(x), self.head[0])], like=x)


class Nb201Cell(nn.Module):
    """One searched cell; all its edges keep resolution and width."""

    def __init__(self, space: Nb201, channels: int, resolve: Resolve) -> None:
        super().__init__()
        place = Place(channels, channels, 1, resolve.normalize)
        decisions = {edge: space.decision(f"{edge[0]}->{edge[1]}") for edge in space.edges}
        self.dag = Dag(
            {
                edge: resolve.edge(decision, place, partial(make_operation, NB201_OPERATIONS))
                for edge, decision in decisions.items()
            },
            strides=dict.fromkeys(space.edges, 1),
            outputs=[max(target for _, target in space.edges)],
        )

    def forward(self, x: Tensor, gates: Gates | None) -> Tensor:
        """Return the result along the paths that the gates open."""
        (last,) = self.dag([x], gates)
        result: Tensor = last
        return result

    def describe(self, planner: NetworkPlanner, x: FeatureMap) -> FeatureMap:
        """Write down the cell for the compiled executor."""
        return self.dag.describe(planner, x)


class ResidualReduction(nn.Module):
    """A residual block that halves the resolution and widens the channels."""

    def __init__(self, channels_in: int, channels_out: int, resolve: Resolve) -> None:
        super().__init__()
        first = Place(channels_in, channels_out, 2, resolve.normalize)
        second = Place(channels_out, channels_out, 1, resolve.normalize)
        self.main = nn.Sequential(ReluConvNorm(first, kernel=3), ReluConvNorm(second, kernel=3))
        self.shortcut = nn.Sequential(
            nn.AvgPool2d(2, ceil_mode=True), nn.Conv2d(channels_in, channels_out, 1, bias=False)
        )

    def forward(self, x: Tensor, gates: Gates | None) -> Tensor:
        """Return the result along the paths that the gates open."""
        result: Tensor = self.main(x) + self.shortcut(x)
        return result

    def describe(self, planner: NetworkPlanner, x: FeatureMap) -> FeatureMap:
        """Write down the block for the compiled executor."""
        first, second = self.main
        middle = planner.add([describe_operation(planner, first, x)], like=x)
        passed = planner.convolve(planner.halve(x, self.shortcut[0]), self.shortcut[1], rectified=False)
        return planner.add([describe_operation(planner, second, middle), planner.keep(passed)], like=passed)


class Nb201Family(Family[Nb201]):
    """Stacks of one cell in three stages."""

    network = Nb201Network
    sizes: ClassVar = [
        Size({"cells_per_stage": depth}, {"channels": width})
        for depth, width in ((1, 8), (1, 16), (2, 16), (3, 16), (5, 16), (5, 24), (5, 32))
    ]
    depth_settings = ("cells_per_stage",)

    def depth_of(self, space: Nb201) -> Depth:
        return Depth(space.cells_per_stage, "cells per stage")

    def at_full_depth(self, space: Nb201) -> Nb201:
        return replace(space, cells_per_stage=max(FULL_DEPTH, space.cells_per_stage))

    def final_size(self, space: Nb201) -> Size:
        return Size({"cells_per_stage": self.at_full_depth(space).cells_per_stage}, {"channels": FULL_WIDTH})

    def source(self, space: Nb201, architecture: Architecture, network: nn.Module, settings: Settings) -> Source:
        cell, cells = _write_cell(space, architecture), space.cells_per_stage
        stem = find_convolution(network, "stem.0")
        context = {"cell": cell, "cells": cells, "stem": stem.out_channels, "colours": stem.in_channels}
        modules = {"stem_conv": "stem.0", "stem_norm": "stem.1", "head_norm": "head.0", "classifier": "head.4"}
        for stage in range(STAGES):
            first = stage * (cells + 1)
            for number in range(cells):
                theirs = f"blocks.{first + number}.dag.edges"
                modules |= cell.list_modules(f"stage{stage + 1}.{number}", theirs, SOURCES)
            if stage + 1 < STAGES:
                modules |= _list_reduction(f"reduction{stage + 1}", f"blocks.{first + cells}")
        return Source(render("nb201.jinja", context), modules)


SOURCES = {
    "nor_conv_1x1": Operation("ReluConvNorm(channels, channels, 1)", RELU_CONV_NORM),
    "nor_conv_3x3": Operation("ReluConvNorm(channels, channels, 3)", RELU_CONV_NORM),
    "avg_pool_3x3": Operation("nn.AvgPool2d(3, 1, padding=1, count_include_pad=False)"),
}


def _write_cell(space: Nb201, architecture: Architecture) -> Cell:
    edges = [Edge(*edge, architecture[f"{edge[0]}->{edge[1]}"]) for edge in space.edges]
    output = space.nodes - 1
    needed, nodes = find_needed([edge for edge in edges if edge.option != NONE], output)
    statements = [
        line
        for node in nodes
        for line in write_node(needed, node, zeros="torch.zeros_like(x0)", result="return" if node == output else "")
    ]
    return Cell("Cell", False, tuple(needed), write_definitions(needed, SOURCES), statements)


def _list_reduction(own: str, theirs: str) -> Modules:
    modules = {f"{own}.shortcut": f"{theirs}.shortcut.1"}
    for position, part in enumerate(("first", "second")):
        modules |= list_inside(f"{own}.{part}", f"{theirs}.main.{position}", RELU_CONV_NORM)
    return modules
