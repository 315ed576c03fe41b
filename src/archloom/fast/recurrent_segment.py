"""A recurrent cell over a whole segment as one function with its own backward pass through time.

It computes what the plain steps compute. Autograd would keep a node for each of some thousand small operations, and add
up the gradient of every matrix at every time step. Here a time step is a few operations on all edges of a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from archloom.fast.late_weights import LateGradients, LateWeights, refuse_second_derivative

EPSILON = 1e-5  # of batch normalisation

# of a gradient and of the activated value: each is one pass over memory
_tanh_backward = torch.ops.aten.tanh_backward
_sigmoid_backward = torch.ops.aten.sigmoid_backward
_relu_backward = torch.ops.aten.threshold_backward


@dataclass(frozen=True)
class Node:
    """One node: the states that it reads, and how; its rows of the shares are `rows`."""

    sources: tuple[int, ...]
    blocks: tuple[tuple[str, int, int], ...] | None  # an activation and its edges; None for a mixture of all
    rows: slice

    @cached_property
    def count(self) -> int:
        """Return the number of edges."""
        return len(self.sources)

    @cached_property
    def reads_first(self) -> bool:
        """Return whether the node reads the first states in their order: nothing has to be gathered then."""
        return self.sources == tuple(range(self.count))

    @cached_property
    def index(self) -> Tensor:
        """Return the numbers of the states."""
        return torch.tensor(self.sources)


@dataclass(frozen=True)
class Cell:
    """A cell of such nodes; `is_weighted` says whether edges of a path have weights."""

    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    normalized: bool
    is_weighted: bool

    @cached_property
    def averages_all(self) -> bool:
        """Return whether the output is the mean of all nodes."""
        return self.outputs == tuple(range(1, 1 + len(self.nodes)))


@dataclass
class _Saved:
    """What the backward pass needs of one node at one time step."""

    read: Tensor  # [edges, B, H]
    dropped: Tensor  # the same as the matrix saw it
    gate: Tensor
    candidate: Tensor
    parts: tuple[Tensor, ...]  # tanh and sigmoid of a mixture
    activated: Tensor
    norm: tuple[Tensor, ...]  # input, mean and inverse deviation; nothing without normalisation


@dataclass
class _Step:
    """What the backward pass needs of one time step."""

    output: Tensor  # before the step
    dropped: Tensor
    gate: Tensor
    candidate: Tensor
    norm: tuple[Tensor, ...]
    nodes: list[_Saved | None]


class SegmentTensors(NamedTuple):
    """The tensors of a segment.

    Attributes:
        given: the inputs through their matrix, [T, B, 2H].
        state: the output before the segment, [B, H].
        hidden: the matrix of the last output, [H, 2H].
        nodes: the matrices of the nodes, [nodes, H, 2H].
        mask: dropout of every state where a matrix reads it, [B, H].
        shares: weights of mixtures [edges, 4] (tanh, relu, sigmoid, identity), or of the edges of a path [edges].
    """

    given: Tensor
    state: Tensor
    hidden: Tensor
    nodes: Tensor
    mask: Tensor | None = None
    shares: Tensor | None = None

    def contiguous(self) -> SegmentTensors:
        """Return the tensors without gaps in memory and without a graph."""
        return SegmentTensors(*(None if one is None else one.detach().contiguous() for one in self))  # type: ignore[arg-type]


class SegmentRunner(LateGradients, Protocol):
    """Runs one segment once: forward, backward, then `finish` for the gradients of its matrices, if they are wanted."""

    def forward(self) -> Tensor:
        """Return the outputs, [T, B, H]."""

    def backward(
        self, gradient: Tensor, *, given: bool, state: bool, shares: bool, weights: bool
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the gradients of the input products, the first state and the shares, as far as wanted."""


def run_segment(runner: SegmentRunner, cell: Cell, tensors: SegmentTensors) -> Tensor:
    """Return the outputs [T, B, H] of a segment, with a gradient by all of its tensors."""
    if cell.normalized and tensors.given.shape[1] < 2:
        raise ValueError("Expected more than 1 value per channel when training, got one column")
    hidden, nodes = tensors.hidden, tensors.nodes
    link: Tensor = LateWeights.apply(runner, hidden, nodes)  # type: ignore[no-untyped-call]
    outputs: Tensor = _Segment.apply(  # type: ignore[no-untyped-call]
        runner, tensors.given, tensors.state, hidden.detach(), nodes.detach(), tensors.shares, link
    )
    return outputs


HIDDEN = -1  # in place of the number of a node: the matrix of the last output


class _Products:
    """Gradients of the matrices, added up from the last time step to the first: at once, or when they are needed."""

    def __init__(self, hidden: Tensor, nodes: Tensor, *, at_once: bool) -> None:
        self._like, self._at_once = (hidden.detach(), nodes.detach()), at_once
        self._left: list[tuple[int, Tensor, Tensor]] = []

    @cached_property
    def _sums(self) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(self._like[0]), torch.zeros_like(self._like[1])

    def add(self, number: int, read: Tensor, gradient: Tensor) -> None:
        """Add the product of what the matrix of a node read, with the gradient of what it returned."""
        if not self._at_once:
            self._left.append((number, read, gradient))
            return
        matrix = self._sums[0] if number == HIDDEN else self._sums[1][number]
        matrix.addmm_(read.t(), gradient)

    def finish(self) -> tuple[Tensor, Tensor]:
        """Return the gradients of both parameters."""
        left, self._left, self._at_once = self._left, [], True
        for number, read, gradient in left:
            self.add(number, read, gradient)
        return self._sums


class _Segment(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        runner: SegmentRunner,
        given: Tensor,
        state: Tensor,
        hidden: Tensor,
        nodes: Tensor,
        shares: Tensor | None,
        link: Tensor,
    ) -> Tensor:
        ctx.runner = runner
        ctx.save_for_backward(hidden, nodes)  # only so that a change in between is noticed
        return runner.forward()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        refuse_second_derivative()
        _ = ctx.saved_tensors
        _, given, state, _, _, shares, link = ctx.needs_input_grad
        runner, ctx.runner = ctx.runner, None
        words, start, weights = runner.backward(gradient, given=given, state=state, shares=shares, weights=link)
        return None, words, start, None, None, weights, gradient.new_zeros(()) if link else None


class TorchSegment:
    """A segment in torch, on any device and in any precision: the reference for the compiled one."""

    def __init__(self, cell: Cell, tensors: SegmentTensors) -> None:
        given, state, hidden, nodes, mask, shares = tensors
        # gates without a gradient: this is a step of the weights, and products are cheapest while factors are at hand
        self._products = _Products(hidden, nodes, at_once=shares is None or not shares.requires_grad)
        self._given, self._state = given.detach(), state.detach()
        self._run = _Run(cell, hidden.detach(), nodes.detach().unbind(), mask, shares)
        self._steps: list[_Step] = []

    def forward(self) -> Tensor:
        """Return the outputs, [T, B, H]."""
        given, state = self._given, self._state
        outputs = given.new_empty(*given.shape[:2], self._run.size)
        for number, word in enumerate(given.unbind()):
            step, state = self._run.forward(word, state)
            outputs[number] = state
            self._steps.append(step)
        return outputs

    def backward(
        self, gradient: Tensor, *, given: bool, state: bool, shares: bool, weights: bool
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the gradients of the input products, the first state and the shares, as far as wanted."""
        found = _Gradients(self._run, self._products if weights else None, shares=shares)
        into = torch.zeros_like(gradient[0])
        inputs = []
        for own in reversed(gradient.unbind()):
            product, into = found.backward(self._steps.pop(), own + into)
            inputs.append(product)
        return torch.stack(inputs[::-1]) if given else None, into if state else None, found.shares

    def finish(self) -> tuple[Tensor, Tensor]:
        """Return the gradients of both parameters, after the backward pass."""
        return self._products.finish()


class _Run:
    """The weights and masks of one segment, and a time step forward."""

    def __init__(
        self, cell: Cell, hidden: Tensor, nodes: Sequence[Tensor], mask: Tensor | None, shares: Tensor | None
    ) -> None:
        self.cell, self.hidden, self.nodes, self.mask = cell, hidden, nodes, mask
        self.size = hidden.shape[0]
        self.shares = None if shares is None else shares.detach()
        is_mixed = [node.blocks is None for node in cell.nodes]
        self.columns = [  # [edges, 1, 1] of every activation, and of their sum
            self._spread(node) if mixed else () for node, mixed in zip(cell.nodes, is_mixed, strict=True)
        ]

    def _spread(self, node: Node) -> tuple[Tensor, ...]:
        assert self.shares is not None
        rows = self.shares[node.rows]
        return (*(column[:, None, None] for column in rows.unbind(dim=1)), rows.sum(dim=1)[:, None, None])

    def drop(self, state: Tensor) -> Tensor:
        return state if self.mask is None else state * self.mask

    def forward(self, word: Tensor, output: Tensor) -> tuple[_Step, Tensor]:
        size, cell = self.size, self.cell
        states = output.new_empty(1 + len(cell.nodes), *output.shape)
        seen = states if self.mask is None else torch.empty_like(states)
        dropped = self.drop(output)
        product = torch.addmm(word, dropped, self.hidden)
        gate, candidate = product[:, :size].sigmoid(), product[:, size:].tanh()
        norm = self._place(torch.lerp(output, candidate, gate), states, seen, 0)
        step = _Step(output, dropped, gate, candidate, norm, [])
        for number, node in enumerate(cell.nodes):
            if not node.sources:
                states[number + 1].zero_()
                seen[number + 1].zero_()
                step.nodes.append(None)
                continue
            saved, total = self._run_node(number, node, states, seen)
            saved.norm = self._place(total, states, seen, number + 1)
            step.nodes.append(saved)
        if cell.averages_all:
            return step, states[1:].mean(dim=0)
        return step, states[list(cell.outputs)].mean(dim=0)

    def _place(self, state: Tensor, states: Tensor, seen: Tensor, number: int) -> tuple[Tensor, ...]:
        """Write a state, normalised if the cell does that, where the nodes read it."""
        norm: tuple[Tensor, ...] = ()
        if self.cell.normalized:
            made, mean, deviation = torch.native_batch_norm(state, None, None, None, None, True, 0.0, EPSILON)
            norm, state = (state, mean, deviation), made
        states[number].copy_(state)
        if self.mask is not None:
            torch.mul(state, self.mask, out=seen[number])
        return norm

    def _run_node(self, number: int, node: Node, states: Tensor, seen: Tensor) -> tuple[_Saved, Tensor]:
        count, size = node.count, self.size
        read = _gather(states, node)
        dropped = read if self.mask is None else _gather(seen, node)
        product = (dropped.flatten(0, 1) @ self.nodes[number]).view(count, -1, 2 * size)
        gate, candidate = product[..., :size].sigmoid(), product[..., size:]
        if node.blocks is None:
            tanh, relu, sigmoid, identity, kept = self.columns[number]
            parts = candidate.tanh(), candidate.sigmoid()
            activated = parts[0] * tanh
            activated.addcmul_(candidate.relu(), relu).addcmul_(parts[1], sigmoid).addcmul_(candidate, identity)
            total = torch.lerp(read * kept, activated, gate).sum(dim=0)
            return _Saved(read, dropped, gate, candidate, parts, activated, ()), total
        activated = _activate(candidate, node.blocks)
        moved = torch.lerp(read, activated, gate)
        if self.cell.is_weighted:
            assert self.shares is not None
            total = (self.shares[node.rows] @ moved.flatten(1)).view(moved.shape[1:])
        else:
            total = moved[0] if count == 1 else moved.sum(dim=0)
        return _Saved(read, dropped, gate, candidate, (), activated, ()), total


class _Gradients:
    """Gradients of a segment, added up while time runs backward."""

    def __init__(self, run: _Run, products: _Products | None, *, shares: bool) -> None:
        self._run, self._products = run, products
        self.shares = torch.zeros_like(run.shares) if shares and run.shares is not None else None

    def backward(self, step: _Step, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the input product and of the output before a step, given that of its output."""
        run, cell = self._run, self._run.cell
        if cell.averages_all:
            states = (gradient / len(cell.nodes)).repeat(1 + len(cell.nodes), 1, 1)
            states[0].zero_()
        else:
            states = gradient.new_zeros(1 + len(cell.nodes), *gradient.shape)
            states[list(cell.outputs)] = gradient / len(cell.outputs)
        for number in reversed(range(len(cell.nodes))):
            saved = step.nodes[number]
            if saved is not None:
                self._backward_node(number, saved, _denormalize(states[number + 1], saved.norm), states)
        total = _denormalize(states[0], step.norm)
        product = total.new_empty(len(total), 2 * run.size)
        moved = step.gate * total
        product[:, run.size :] = _tanh_backward(moved, step.candidate)
        rest = torch.addcmul(moved, moved, step.gate, value=-1)
        torch.mul(step.candidate - step.output, rest, out=product[:, : run.size])
        if self._products is not None:
            self._products.add(HIDDEN, step.dropped, product)
        before = product @ run.hidden.t()
        return product, (total - moved).add_(run.drop(before))

    def _backward_node(self, number: int, saved: _Saved, total: Tensor, states: Tensor) -> None:
        run, node = self._run, self._run.cell.nodes[number]
        count, size = node.count, run.size
        passed = total  # [B, H], or [edges, B, H] where edges have weights
        if node.blocks is not None and run.cell.is_weighted:
            assert run.shares is not None
            if self.shares is not None:
                moved = torch.lerp(saved.read, saved.activated, saved.gate)
                self.shares[node.rows] += moved.flatten(1) @ total.flatten()
            passed = run.shares[node.rows][:, None, None] * total
        through = saved.gate * passed  # of the activated candidate
        around = passed - through  # of the state, along the highway
        product = through.new_empty(count, len(total), 2 * size)
        rest = torch.addcmul(through, through, saved.gate, value=-1)
        if node.blocks is None:
            tanh, relu, sigmoid, identity, kept = run.columns[number]
            if self.shares is not None:
                self._add_mixture(node, saved, through, around)
            slope = _tanh_backward(tanh, saved.parts[0])
            slope += _sigmoid_backward(sigmoid, saved.parts[1])
            slope += _relu_backward(relu.expand_as(slope), saved.candidate, 0)
            slope += identity
            torch.mul(through, slope, out=product[..., size:])
            torch.mul(torch.addcmul(saved.activated, saved.read, kept, value=-1), rest, out=product[..., :size])
            around = around * kept
        else:
            _multiply_slopes(through, saved, node.blocks, out=product[..., size:])
            torch.mul(saved.activated - saved.read, rest, out=product[..., :size])
        flat = product.flatten(0, 1)
        if self._products is not None:
            self._products.add(number, saved.dropped.flatten(0, 1), flat)
        back = (flat @ run.nodes[number].t()).view(count, -1, size)
        back = around.add_(run.drop(back)) if around.shape == back.shape else around + run.drop(back)
        if node.reads_first:
            states[:count] += back
        elif count == 1:
            states[node.sources[0]] += back[0]
        else:
            states.index_add_(0, node.index.to(back.device), back)

    def _add_mixture(self, node: Node, saved: _Saved, through: Tensor, around: Tensor) -> None:
        """Add the gradient of every share: what its activation alone, and the highway beside it, would have passed."""
        assert self.shares is not None
        highway = (around * saved.read).flatten(1).sum(dim=1)
        candidates = (saved.parts[0], saved.candidate.relu(), saved.parts[1], saved.candidate)
        own = [(through * one).flatten(1).sum(dim=1) for one in candidates]
        self.shares[node.rows] += torch.stack(own, dim=1).add_(highway[:, None])


def _gather(states: Tensor, node: Node) -> Tensor:
    """Return the states that a node reads, [edges, B, H]."""
    if node.reads_first:
        return states[: node.count]
    if node.count == 1:
        return states[node.sources[0]].unsqueeze(0)
    return states.index_select(0, node.index.to(states.device))


def _activate(candidate: Tensor, blocks: Sequence[tuple[str, int, int]]) -> Tensor:
    """Return activated candidates [edges, B, H]; each activation runs on one block of neighbours."""
    made = torch.empty(candidate.shape, dtype=candidate.dtype, device=candidate.device)
    for name, first, last in blocks:
        if name == "identity":
            made[first:last].copy_(candidate[first:last])
        elif name == "relu":
            torch.clamp_min(candidate[first:last], 0, out=made[first:last])
        else:
            getattr(torch, name)(candidate[first:last], out=made[first:last])
    return made


def _multiply_slopes(through: Tensor, saved: _Saved, blocks: Sequence[tuple[str, int, int]], *, out: Tensor) -> None:
    """Write the gradient of the candidates: that of the activated ones times the slope of each activation."""
    for name, first, last in blocks:
        value, into, target = saved.activated[first:last], through[first:last], out[first:last]
        if name == "identity":
            target.copy_(into)
        elif name == "relu":
            target.copy_(_relu_backward(into, value, 0))
        else:
            target.copy_((_tanh_backward if name == "tanh" else _sigmoid_backward)(into, value))


def _denormalize(gradient: Tensor, norm: tuple[Tensor, ...]) -> Tensor:
    """Return the gradient of what was normalised."""
    if not norm:
        return gradient
    state, mean, deviation = norm
    found: Tensor = torch.ops.aten.native_batch_norm_backward(
        gradient, state, None, None, None, mean, deviation, True, EPSILON, [True, False, False]
    )[0]
    return found
