"""Cells of partial channels: a part of the channels runs through the operations, the rest passes by (Xu et al., 2020).

A node is the shuffled concatenation of a mixture over the first channels of its inputs and of a weighted sum of their
other channels. The mixture of each node runs as a fused cell. The shuffle is linear and the same on all edges of a
node, so it runs once per node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.fast.fused import Edge, Fusible, is_shared_by_images
from archloom.fast.kernels import Kernels
from archloom.spaces import NONE, Decision
from archloom.supernet.gate import Gate, Gates

CHANNELS_LAST = {"memory_format": torch.channels_last}
Choices = Mapping[Edge, tuple[Decision, nn.ModuleDict]]


class PartialFusible:
    """Hold the branches of a cell of partial channels."""

    def __init__(self, choices: Choices, strides: Mapping[Edge, int], *, parts: int) -> None:
        self._choices, self._strides, self._parts = dict(choices), dict(strides), parts
        self._fused: dict[tuple[Edge, ...], Fusible] = {}  # of a node, by the edges that enter it

    def run(
        self, kernels: Kernels, inputs: Sequence[Tensor], gates: Gates, outputs: Sequence[int]
    ) -> dict[int, Tensor] | None:
        """Return the states that are not zero, or None where only the plain modules can run these gates."""
        own = [gates[decision.name] for decision, _ in self._choices.values()]
        if any(gate.offset is not None or not is_shared_by_images(gate) for gate in own):
            return None
        states = {number: _Split(image, self._parts) for number, image in enumerate(inputs)}
        for target in sorted({target for _, target in self._choices}):
            edges = tuple(edge for edge in self._choices if edge[1] == target and edge[0] in states)
            node = self._node(kernels, states, [edge for edge in edges if self._is_open(edge, gates)], gates)
            if node is not None:
                states[target] = _Split(node, self._parts)
        return {number: state.image for number, state in states.items() if number >= len(inputs)}

    def _is_open(self, edge: Edge, gates: Gates) -> bool:
        decision, _ = self._choices[edge]
        return not is_closed(decision, gates[decision.name])

    def _node(
        self, kernels: Kernels, states: Mapping[int, _Split], edges: Sequence[Edge], gates: Gates
    ) -> Tensor | None:
        if not edges:
            return None
        key, last = tuple(edges), len(edges)
        if key not in self._fused:
            self._fused[key] = Fusible({(place, last): self._choices[edge] for place, edge in enumerate(edges)})
        mixed = self._fused[key].run(kernels, [states[source].first for source, _ in edges], gates, [last])
        passed = self._pass_by(states, edges, gates)
        return join_parts(None if mixed is None else mixed.get(last), passed, self._parts)

    def _pass_by(self, states: Mapping[int, _Split], edges: Sequence[Edge], gates: Gates) -> Tensor:
        total: Tensor | None = None
        for edge in edges:
            rest = states[edge[0]].rest(self._strides[edge])
            share = share_of(gates[self._choices[edge][0].name])
            if total is None:
                total = rest if share is None else rest * share
            else:
                total = total + rest if share is None else torch.addcmul(total, rest, share.to(rest.dtype))
        assert total is not None, "a node has edges"
        return total


class _Split:
    """Hold a state, its first channels, and the others at each stride."""

    def __init__(self, image: Tensor, parts: int) -> None:
        self.image, self._width = image, image.shape[1] // parts
        self._rest: dict[int, Tensor] = {}
        self._first: Tensor | None = None

    @property
    def first(self) -> Tensor:
        """Return the channels that run through operations, packed for the kernels."""
        if self._first is None:
            self._first = self.image[:, : self._width].contiguous(**CHANNELS_LAST)
        return self._first

    def rest(self, stride: int) -> Tensor:
        """Return the channels that pass by; pooled once for all edges that halve the resolution."""
        if stride not in self._rest:
            self._rest[stride] = pool_by(self.image[:, self._width :], stride)
        return self._rest[stride]


def is_closed(decision: Decision, gate: Gate) -> bool:
    """Return whether nothing runs and nothing passes by: the gate is closed, or `none` was chosen alone."""
    if gate.index is None:
        return gate.weights is None
    return not isinstance(gate.index, Tensor) and decision.options[gate.index] == NONE


def share_of(gate: Gate) -> Tensor | None:
    """Return the weight of an edge as a whole, the sum over its options; None stands for 1."""
    return None if gate.weights is None else gate.weights.sum(dim=-1)


def pool_by(rest: Tensor, stride: int) -> Tensor:
    """Return the channels that pass by at the resolution of the edge's result."""
    return rest if stride == 1 else F.max_pool2d(rest, 2, stride, ceil_mode=True)


def join_parts(mixed: Tensor | None, passed: Tensor, parts: int) -> Tensor:
    """Concatenate what was mixed and what passed by, and shuffle: channel c of `parts` groups goes group by group.

    Channels 0 1 2 3 4 5 6 7 of four parts come out as 0 2 4 6 1 3 5 7.
    """
    batch, rest, height, width = passed.shape
    if mixed is None:
        mixed = passed.new_zeros(batch, rest // (parts - 1), height, width)
    groups = [mixed, *passed.chunk(parts - 1, dim=1)]
    # [images, height, width, channels of a part, parts]: the last two, flattened, are the shuffled channels
    stacked = torch.stack([group.permute(0, 2, 3, 1) for group in groups], dim=-1)
    return stacked.flatten(3).permute(0, 3, 1, 2)
