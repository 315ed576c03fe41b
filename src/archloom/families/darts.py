"""The network of the DARTS family: cells that read the two cells before them, widening where resolution halves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from annotated_doc import Doc
from torch import Tensor, nn

from archloom.core.errors import require
from archloom.families.auxiliary import AuxiliaryHead
from archloom.families.regularization import drop_edges, flatten, rates
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
from archloom.spaces import Darts
from archloom.spaces.darts import INPUTS, CellSlot
from archloom.supernet import Dag, Gates, Prediction, Resolve


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
        drop_path: Annotated[
            float, Doc("chance at the end of training that an image skips an edge, identities aside; 0 is off")
        ] = 0.0,
        dropout: Annotated[float, Doc("share of features dropped before the last layer, in training only")] = 0.0,
    ) -> None:
        super().__init__()
        require(
            {
                f"network.channels must be at least 1, got {channels}": channels >= 1,
                f"network.stem_multiplier must be at least 1, got {stem_multiplier}": stem_multiplier >= 1,
                f"network.stem must be cifar or imagenet, got {stem!r}": stem in ("cifar", "imagenet"),
                f"network.channels must be at least 2 with the imagenet stem, got {channels}": (
                    stem != "imagenet" or channels >= 2
                ),
                **rates(drop_path, dropout),
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

    def forward(self, images: Tensor, gates: Gates | None = None) -> Tensor | Prediction:
        before = self.stem(images)
        last = before if self.second_stem is None else self.second_stem(before)
        early: Tensor | None = None  # what the auxiliary head reads
        for position, cell in enumerate(self.cells):
            before, last = last, cell(before, last, gates)
            if position == self._auxiliary_after:
                early = last
        logits: Tensor = self.head(last)
        if self.auxiliary is None or not self.training:
            return logits
        return Prediction(logits, self.auxiliary(early))


def _stem(colours: int, width: int, resolve: Resolve) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(colours, width, 3, padding=1, bias=False), resolve.normalize(width))


def _imagenet_stem(colours: int, width: int, resolve: Resolve) -> nn.Sequential:
    """To a quarter of the resolution, in two steps."""
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
        inputs = [self.first(before), self.second(last)]
        if self.dag is None:
            assert self.fixed is not None
            reduced: Tensor = self.fixed(*inputs)
            return reduced
        nodes: list[Tensor] = self.dag(inputs, gates)
        return torch.cat(nodes, dim=1)


def _graph(space: Darts, slot: CellSlot, channels: int, resolve: Resolve, operations: Mapping[str, Make]) -> Dag:
    edges = [(source, INPUTS + node) for node in range(space.nodes) for source in space.sources(node)]
    strides = {edge: 2 if slot.reduction and edge[0] < INPUTS else 1 for edge in edges}

    def module(edge: tuple[int, int]) -> nn.Module:
        place = Place(channels, channels, strides[edge], resolve.normalize)
        decision = space.decision(space.edge_name(slot.name, edge[0], edge[1] - INPUTS))
        return resolve.operation(decision, lambda option: make_operation(operations, option, place))

    return Dag({edge: module(edge) for edge in edges}, strides, outputs=range(INPUTS, INPUTS + space.nodes))
