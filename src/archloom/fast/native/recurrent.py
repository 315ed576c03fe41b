"""A segment of a recurrent cell in the compiled library: forward, backward, and the gradients of matrices."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from archloom.fast.native.arguments import WIDEST, address_of, check_memory, pointer_to
from archloom.fast.native.workspaces import Workspace, Workspaces

if TYPE_CHECKING:
    from archloom.fast.recurrent_segment import Cell, SegmentTensors

NUMBERS = {"tanh": 0, "relu": 1, "sigmoid": 2, "identity": 3}  # `Activation` in recurrent.hpp


class NativeSegment:
    """One segment in compiled code. Its steps are taken once each: forward, backward, gradients of matrices.

    The backward pass writes over what the forward pass kept, and the gradients of matrices are products of that.
    """

    def __init__(
        self, functions: Mapping[str, Callable[..., int]], workspaces: Workspaces, cell: Cell, tensors: SegmentTensors
    ) -> None:
        self._functions, self._workspaces, self._nodes = functions, workspaces, len(cell.nodes)
        self._tensors = tensors.contiguous()
        counts = [node.count for node in cell.nodes]
        self._lists = (
            array("q", accumulate(counts, initial=0)),
            array("q", (source for node in cell.nodes for source in node.sources)),
            array("q", _activations(cell)),
            array("q", cell.outputs),
        )
        is_mixed = any(node.sources and node.blocks is None for node in cell.nodes)
        self._flags = self._nodes, len(cell.outputs), int(cell.normalized), int(is_mixed)
        self._edges = sum(counts)
        self._table = array("q")  # this and the next are made by the forward pass
        self._kept: Workspace | None = None

    def forward(self) -> Tensor:
        """Return the outputs, [T, B, H]."""
        given, state, hidden, nodes, mask, shares = self._tensors
        steps, columns, size = *given.shape[:2], len(hidden)
        padded, states = (size + WIDEST - 1) // WIDEST * WIDEST, self._nodes + 1
        shapes = (
            (steps, states, columns, padded),
            (steps, states, columns, padded),
            (2, steps, columns, padded),
            (steps, 1 + self._edges, columns, 2 * padded),
            (steps, states, padded),
        )
        self._kept = self._workspaces.lend(sum(map(math.prod, shapes)))
        self._table = array("q", (steps, columns, size, *self._flags, *map(address_of, self._lists)))
        self._table.extend(map(pointer_to, (given, state, hidden, nodes, mask, shares, *self._kept.cut(*shapes))))
        out = given.new_empty(steps, columns, size)
        self._call("recurrent", out)
        return out

    def backward(
        self, gradient: Tensor, *, given: bool, state: bool, shares: bool, weights: bool
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the gradients of the input products, the first state and the shares, as far as wanted."""
        of = self._tensors
        by_given = torch.empty_like(of.given) if given else None
        by_state = torch.empty_like(of.state)
        by_shares = torch.empty_like(of.shares) if shares and of.shares is not None else None
        self._call("recurrent_backward", gradient.contiguous(), by_given, by_state, by_shares)
        if not weights:
            self._kept = None
        return by_given, by_state if state else None, by_shares

    def finish(self) -> tuple[Tensor, Tensor]:
        """Return the gradients of both parameters, after the backward pass."""
        by_hidden, by_nodes = torch.empty_like(self._tensors.hidden), torch.empty_like(self._tensors.nodes)
        self._call("recurrent_weights", by_hidden, by_nodes)
        self._kept = None
        return by_hidden, by_nodes

    def _call(self, name: str, *tensors: Tensor | None) -> None:
        if self._kept is None:
            raise RuntimeError("a segment was differentiated twice; compute its loss again")
        pointers = map(pointer_to, tensors)
        check_memory(self._functions[name](address_of(self._table), *pointers, torch.get_num_threads()))


def _activations(cell: Cell) -> list[int]:
    """Return the number of the activation of every edge; those of a mixture mean nothing."""
    found = []
    for node in cell.nodes:
        own = [0] * node.count
        for name, first, last in node.blocks or ():
            own[first:last] = [NUMBERS[name]] * (last - first)
        found += own
    return found
