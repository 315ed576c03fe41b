"""The network of the DARTS family: cells that read the two cells before them, widening where resolution halves."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from archloom.errors import require
from archloom.operations import DARTS_OPERATIONS, FactorizedReduce, FixedReduction, Place, ReluConvNorm, make_operation
from archloom.spaces import Darts
from archloom.spaces.darts import INPUTS, CellSlot
from archloom.supernets import Dag, Gates, Resolve


class DartsNetwork(nn.Module):
    """A stem of `stem_multiplier * channels`, the stack of cells, a linear head; called with (images, gates)."""

    def __init__(
        self,
        space: Darts,
        resolve: Resolve,
        classes: int,
        colours: int,
        /,
        *,
        channels: int = 16,  # width of the first cells
        stem_multiplier: int = 3,  # the stem is so many times wider
    ) -> None:
        super().__init__()
        require(
            {
                f"network.channels must be at least 1, got {channels}": channels >= 1,
                f"network.stem_multiplier must be at least 1, got {stem_multiplier}": stem_multiplier >= 1,
            }
        )
        width = stem_multiplier * channels
        self.stem = nn.Sequential(nn.Conv2d(colours, width, 3, padding=1, bias=False), resolve.normalize(width))
        self.cells = nn.ModuleList()
        before, last = (width, False), (width, False)  # channels of an input, and whether it was just reduced
        for slot in space.slots:
            channels = 2 * channels if slot.reduction else channels
            cell = DartsCell(space, slot, (before[0], last[0]), channels, resolve, reduced_before=last[1])
            self.cells.append(cell)
            before, last = last, (cell.channels_out, slot.reduction)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last[0], classes))

    def forward(self, images: Tensor, gates: Gates | None = None) -> Tensor:
        before = last = self.stem(images)
        for cell in self.cells:
            before, last = last, cell(before, last, gates)
        logits: Tensor = self.head(last)
        return logits


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
    ) -> None:
        super().__init__()
        first = Place(channels_in[0], channels, 2 if reduced_before else 1, resolve.normalize)
        second = Place(channels_in[1], channels, 1, resolve.normalize)
        self.first = FactorizedReduce(first) if reduced_before else ReluConvNorm(first, kernel=1)
        self.second = ReluConvNorm(second, kernel=1)
        self.fixed = FixedReduction(channels, resolve.normalize) if slot.fixed else None
        self.dag = None if slot.fixed else _graph(space, slot, channels, resolve)
        self.channels_out = channels * (4 if slot.fixed else space.nodes)

    def forward(self, before: Tensor, last: Tensor, gates: Gates | None) -> Tensor:
        inputs = [self.first(before), self.second(last)]
        if self.dag is None:
            assert self.fixed is not None
            reduced: Tensor = self.fixed(*inputs)
            return reduced
        nodes: list[Tensor] = self.dag(inputs, gates)
        return torch.cat(nodes, dim=1)


def _graph(space: Darts, slot: CellSlot, channels: int, resolve: Resolve) -> Dag:
    edges = [(source, INPUTS + node) for node in range(space.nodes) for source in space.sources(node)]
    strides = {edge: 2 if slot.reduction and edge[0] < INPUTS else 1 for edge in edges}
    places = {edge: Place(channels, channels, strides[edge], resolve.normalize) for edge in edges}
    modules = {edge: _edge(space, slot.name, edge, places[edge], resolve) for edge in edges}
    return Dag(modules, strides, outputs=range(INPUTS, INPUTS + space.nodes))


def _edge(space: Darts, cell: str, edge: tuple[int, int], place: Place, resolve: Resolve) -> nn.Module:
    decision = space.decision(space.edge_name(cell, edge[0], edge[1] - INPUTS))
    return resolve.operation(decision, lambda option: make_operation(DARTS_OPERATIONS, option, place))
