"""Run a cell as one function with its own backward pass: shared parts once, unneeded parts never.

* Branches that start from the same state are computed together (see `branch_groups`): one rectified image, one pool,
  and one call for the depthwise or 1x1 convolutions of several branches.
* Normalising, weighing and adding is one step per state. No branch's result is written twice, and the gradient of the
  mixture's weights is a by-product of the gradient of the normalisation.
* States that nothing reads, and branches that see only zeros, do not run.
* Gradients of weights (or of the cell's inputs) are computed only if the present backward pass uses them.
* With `machine.recompute` a run keeps only its inputs, and the backward pass computes it again to save memory.

It has no second derivative; use the plain modules for one: `with use_kernels("plain")`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from archloom.fast import Kernels, Slot, Term, should_recompute
from archloom.fast.branch_groups import BranchGroup, State, group_branches
from archloom.fast.branches import Branch, branch_of
from archloom.fast.kernel_arguments import Slots, check_normalizable
from archloom.spaces import Decision
from archloom.supernet.gate import Gate, Gates
from archloom.supernet.normalization import refuse_second_derivative, to_nhwc

Edge = tuple[int, int]
CONTIGUOUS = {"memory_format": torch.contiguous_format}


@dataclass(frozen=True)
class ActiveBranch:
    """Hold a branch that runs: its source and target state, and the index of its coefficient."""

    edge: Edge
    branch: Branch
    coefficient: int


@dataclass
class _Incoming:
    """Collect the terms of one state."""

    terms: list[Term] = field(default_factory=list)
    coefficients: list[int] = field(default_factory=list)
    groups: list[tuple[BranchGroup, int]] = field(default_factory=list)  # of each term, with its number there
    places: Tensor = field(init=False)  # the coefficients as a tensor
    weights: Tensor = field(init=False)  # their values

    def close(self, coefficients: Tensor) -> None:
        """Look up the weights of all terms, once they are complete."""
        if any(term.normalized for term in self.terms):
            check_normalizable(self.terms[0].image)  # all have the same shape
        self.places = torch.tensor(self.coefficients, device=coefficients.device)
        self.weights = coefficients.index_select(0, self.places)


class Fusible:
    """Hold the branches of a cell whose edges are all choices."""

    def __init__(self, choices: Mapping[Edge, tuple[Decision, nn.ModuleDict]]) -> None:
        self._branches = {
            edge: (decision.name, {decision.index(option): branch_of(module) for option, module in candidates.items()})
            for edge, (decision, candidates) in choices.items()
        }

    def run(
        self, kernels: Kernels, inputs: Sequence[Tensor], gates: Gates, outputs: Sequence[int]
    ) -> dict[int, Tensor] | None:
        """Return the states `outputs` that are not zero, or None where only the plain modules can run these gates."""
        names = {name for name, _ in self._branches.values()}
        if any(not is_shared_by_images(gates[name]) for name in names):
            return None
        coefficients, actives, offsets = _Coefficients(inputs[0]), list[ActiveBranch](), dict[int, list[int]]()
        for edge, (name, branches) in self._branches.items():
            gate = gates[name]
            if gate.offset is not None:
                offsets.setdefault(edge[1], []).append(coefficients.place_number(gate.offset))
            for option in branches if gate.index is None else [int(gate.index)]:
                if option in branches and (gate.index is not None or gate.weights is not None):
                    actives.append(ActiveBranch(edge, branches[option], coefficients.place(name, gate, option)))
        if not offsets.keys() <= _find_reached(actives, len(inputs)):
            return None  # a state of offsets alone: as good as zero, but its readers pass gradient
        return _run(kernels, inputs, actives, coefficients.join(), outputs, offsets)


def is_shared_by_images(gate: Gate) -> bool:
    """Return whether all images share the gate."""
    one = gate.weights is None or gate.weights.dim() == 1
    return one and not isinstance(gate.index, Tensor)


class _Coefficients:
    """Collect the weights of all gates in one tensor, after a one for branches without a weight."""

    def __init__(self, like: Tensor) -> None:
        self._rows = [torch.ones(1, dtype=like.dtype, device=like.device)]
        self._starts: dict[str, int] = {}
        self._length = 1

    def place(self, name: str, gate: Gate, option: int) -> int:
        if gate.weights is None:
            return 0
        if name not in self._starts:
            self._starts[name] = self._length
            self._rows.append(gate.weights.to(self._rows[0].dtype))
            self._length += len(gate.weights)
        return self._starts[name] + option

    def place_number(self, value: Tensor) -> int:
        self._rows.append(value.to(self._rows[0].dtype).reshape(1))
        self._length += 1
        return self._length - 1

    def join(self) -> Tensor:
        return torch.cat(self._rows)


def _run(
    kernels: Kernels,
    inputs: Sequence[Tensor],
    actives: Sequence[ActiveBranch],
    coefficients: Tensor,
    outputs: Sequence[int],
    offsets: Mapping[int, Sequence[int]],
) -> dict[int, Tensor]:
    actives = _keep_useful(actives, len(inputs), outputs)
    cell = _Cell(kernels, len(inputs), actives, outputs, offsets)
    parameters = cell.parameters
    flat = _Join.apply(*parameters) if parameters else coefficients.new_empty(0)  # type: ignore[no-untyped-call]
    cell.watch_graph(parameters, flat, inputs)
    images = _Function.apply(cell, flat, coefficients, *inputs)  # type: ignore[no-untyped-call]
    return dict(zip(cell.outputs, images, strict=True))


def _find_reached(actives: Sequence[ActiveBranch], inputs: int) -> set[int]:
    """Return the states that are not zero."""
    reached = set(range(inputs))
    for active in sorted(actives, key=lambda active: active.edge[1]):
        if active.edge[0] in reached:
            reached.add(active.edge[1])
    return reached


def _keep_useful(actives: Sequence[ActiveBranch], inputs: int, outputs: Sequence[int]) -> list[ActiveBranch]:
    """Return the branches whose source is not zero and whose target is read."""
    reached = _find_reached(actives, inputs)
    read = set(outputs)
    for active in sorted(actives, key=lambda active: -active.edge[1]):
        if active.edge[1] in read and active.edge[0] in reached:
            read.add(active.edge[0])
    return [active for active in actives if active.edge[0] in reached and active.edge[1] in read]


class _Cell:
    """Run a cell once, and keep what the backward pass needs."""

    def __init__(
        self,
        kernels: Kernels,
        inputs: int,
        actives: Sequence[ActiveBranch],
        outputs: Sequence[int],
        offsets: Mapping[int, Sequence[int]],  # of a state: the places of the numbers that are added to it
    ) -> None:
        self._kernels, self._inputs = kernels, inputs
        self._actives, self._asked, self._offsets = actives, outputs, offsets
        outgoing: dict[int, list[ActiveBranch]] = {}
        for active in actives:
            outgoing.setdefault(active.edge[0], []).append(active)
        self._groups: dict[int, list[tuple[BranchGroup, list[ActiveBranch]]]] = {
            state: [
                (group, [members[number] for number in numbers])
                for group, numbers in group_branches(kernels, [active.branch for active in members])
            ]
            for state, members in outgoing.items()
        }
        self._targets = sorted({active.edge[1] for active in actives})
        self.outputs = [number for number in outputs if number < inputs or number in self._targets]
        self._states: dict[int, State] = {}
        self._incoming: dict[int, _Incoming] = {}
        self._weights_node: Any = None
        self._input_nodes: list[Any] = []

    @property
    def parameters(self) -> list[Tensor]:
        return [parameter for group in self._all_groups() for parameter in group.parameters]

    def _all_groups(self) -> Iterator[BranchGroup]:
        for state in sorted(self._groups):
            for group, _ in self._groups[state]:
                yield group

    def watch_graph(self, parameters: Sequence[Tensor], flat: Tensor, inputs: Sequence[Tensor]) -> None:
        """Store the graph nodes behind the inputs: the backward pass asks torch whether it will reach them."""
        self._parameters = parameters
        self._weights_node = flat.grad_fn
        self._input_nodes = [image.grad_fn for image in inputs]

    def restart(self) -> _Cell:
        """Return the same run before it began: its graph nodes, without any image."""
        cell = _Cell(self._kernels, self._inputs, self._actives, self._asked, self._offsets)
        cell._parameters = self._parameters
        cell._weights_node, cell._input_nodes = self._weights_node, self._input_nodes
        return cell

    # --- forwards

    def forward(self, flat: Tensor, coefficients: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
        self._coefficients = coefficients.detach()
        weights = iter(_split(flat.detach(), self._parameters))
        self._incoming = {target: _Incoming() for target in self._targets}
        for number, image in enumerate(inputs):
            self._enter_state(number, to_nhwc(image.detach()), weights)
        for number in self._targets:
            incoming = self._incoming[number]
            incoming.close(self._coefficients)
            mixed = self._kernels.mix(incoming.terms, incoming.weights)
            if number in self._offsets:
                mixed = mixed + self._coefficients[self._offsets[number]].sum()
            self._enter_state(number, mixed, weights)
        return [self._states[number].image.permute(0, 3, 1, 2) for number in self.outputs]

    def _enter_state(self, number: int, image: Tensor, weights: Iterator[Tensor]) -> None:
        """Store a state and compute the branches that start from it."""
        state = self._states[number] = State(image)
        for group, actives in self._groups.get(number, []):
            own = list(islice(weights, group.weight_count))
            for place, (active, term) in enumerate(zip(actives, group.forward(state, own), strict=True)):
                incoming = self._incoming[active.edge[1]]
                incoming.terms.append(term)
                incoming.coefficients.append(active.coefficient)
                incoming.groups.append((group, place))
        state.release()

    # --- backwards

    def backward(
        self, gradients: Sequence[Tensor | None], wanted: Sequence[bool], *, keep: bool
    ) -> tuple[Tensor | None, Tensor | None, list[Tensor | None]]:
        """Return the gradients of the weights, the coefficients and the inputs, as far as `wanted` and used.

        Memory is freed as soon as possible, unless the graph is kept for another pass.
        """
        weights_wanted = wanted[0] and _is_used(self._weights_node)
        slots = self._prepare(gradients, wanted[2:], weights_wanted=weights_wanted)
        by_coefficient = torch.zeros_like(self._coefficients)
        by_weights = self._coefficients.new_empty(sum(map(Tensor.numel, self._parameters))) if weights_wanted else None
        rooms = [] if by_weights is None else list(_split(by_weights, self._parameters))
        by_inputs: list[Tensor | None] = [None] * self._inputs
        for number in sorted(self._states, reverse=True):
            state, incoming, outgoing = self._states[number], self._incoming.get(number), self._groups.get(number, [])
            if not keep:
                for part in (self._states, self._incoming, self._groups):
                    part.pop(number, None)
            self._leave_state(state, outgoing, slots, rooms if weights_wanted else None)
            del outgoing
            slot, state.slot = state.slot, None
            if slot is not None and incoming is not None:
                gradient = slot.buffer(state.image)
                if wanted[1] and number in self._offsets:
                    by_coefficient[self._offsets[number]] += gradient.sum()
                self._mix_backward(incoming, gradient, slots, by_coefficient if wanted[1] else None)
            elif slot is not None:
                by_inputs[number] = None if slot.image is None else slot.image.permute(0, 3, 1, 2)
        return by_weights, by_coefficient if wanted[1] else None, by_inputs

    def _leave_state(
        self,
        state: State,
        outgoing: Sequence[tuple[BranchGroup, Any]],
        slots: dict[int, Any],
        rooms: list[Tensor] | None,  # for the gradients of the weights of this state and those before it
    ) -> None:
        """Propagate through all groups that start from a state, and take the last rooms for their weights."""
        own = None
        if rooms is not None:
            count = len(rooms) - sum(group.weight_count for group, _ in outgoing)
            own, rooms[count:] = iter(rooms[count:]), []
        for group, _ in outgoing:
            group.backward(state, None if own is None else list(islice(own, group.weight_count)))
            del slots[id(group)]
        if state.by_rectified is not None and state.slot is not None:
            self._kernels.rectify_backward(state.by_rectified, state.image, state.slot)
            state.by_rectified = None
        state.release()

    def _prepare(
        self, gradients: Sequence[Tensor | None], inputs_wanted: Sequence[bool], *, weights_wanted: bool
    ) -> dict[int, Slots]:
        """Return slots for the gradients of every group's terms, and set those of the states."""
        for number, state in self._states.items():
            asked = number >= self._inputs or (inputs_wanted[number] and _is_used(self._input_nodes[number]))
            state.slot = Slot() if asked else None
        for number, gradient in zip(self.outputs, gradients, strict=True):
            slot = self._states[number].slot
            if slot is not None:  # autograd may share its own gradient with others
                slot.add(self._own_gradient(number, gradient))
        return {
            id(group): group.make_slots(self._states[number], weights_wanted=weights_wanted)
            for number in self._groups
            for group, _ in self._groups[number]
        }

    def _own_gradient(self, number: int, gradient: Tensor | None) -> Tensor:
        """Return the gradient of an output; a copy where the states after it add to it."""
        if gradient is None:
            return torch.zeros_like(self._states[number].image)
        image = to_nhwc(gradient)
        only_read = number >= self._inputs and number not in self._groups
        return image.contiguous() if only_read else image.clone(**CONTIGUOUS)

    def _mix_backward(
        self,
        incoming: _Incoming,
        gradient: Tensor,
        slots: Mapping[int, Slots],
        by_coefficient: Tensor | None,
    ) -> None:
        own = [slots[id(group)][place] for group, place in incoming.groups]
        wanted = by_coefficient is not None
        found = self._kernels.mix_backward(gradient, incoming.terms, incoming.weights, own, weights_wanted=wanted)
        if by_coefficient is not None and found is not None:
            by_coefficient.index_add_(0, incoming.places, found)


class _Join(torch.autograd.Function):
    """Join parameters in one tensor: a single node of the graph, not three for each of them."""

    @staticmethod
    def forward(ctx: Any, *parameters: Tensor) -> Tensor:
        ctx.parameters = parameters
        ctx.set_materialize_grads(False)
        flat: Tensor = _flatten_dense_tensors(parameters)  # type: ignore[no-untyped-call]
        return flat.clone() if len(parameters) == 1 else flat  # of one tensor it is a view

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        return (None,) * len(ctx.parameters) if gradient is None else _split(gradient, ctx.parameters)


class _Function(torch.autograd.Function):
    """Connect a cell's run to torch's graph."""

    @staticmethod
    def forward(ctx: Any, cell: _Cell, flat: Tensor, coefficients: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.cell, ctx.recompute = cell, should_recompute()
        ctx.set_materialize_grads(False)
        images = tuple(cell.forward(flat, coefficients, inputs))
        if ctx.recompute:
            ctx.cell = cell.restart()
            ctx.save_for_backward(flat, coefficients, *inputs)
        return images

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        refuse_second_derivative()
        if all(gradient is None for gradient in gradients):
            return (None,) * len(ctx.needs_input_grad)  # the loss does not depend on this cell
        if ctx.cell is None:
            raise RuntimeError(
                "the graph of this cell was freed by an earlier backward pass; use retain_graph=True there"
            )
        keep, cell = _graph_is_kept(), ctx.cell
        if ctx.recompute:
            flat, coefficients, *inputs = ctx.saved_tensors
            cell = cell.restart() if keep else cell
            cell.forward(flat, coefficients, inputs)
        flat, coefficients, inputs = cell.backward(gradients, ctx.needs_input_grad[1:], keep=keep)
        if not keep:
            ctx.cell = None
        return None, flat, coefficients, *inputs


# What torch knows of the backward pass in progress. Where a version does not offer it, every gradient is computed and
# every graph is kept until it is dropped: more work and memory, the same results.
_will_run = getattr(torch._C, "_will_engine_execute_node", lambda node: True)
_graph_is_kept = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


def _is_used(node: Any) -> bool:
    """Return whether this backward pass will reach a node. Leaves have none and count as used."""
    return node is None or bool(_will_run(node))


def _split(flat: Tensor, like: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the parts of a tensor that `_Join` made, as views with the shapes of these parameters."""
    if not like:
        return ()
    parts: tuple[Tensor, ...] = _unflatten_dense_tensors(flat, like)  # type: ignore[no-untyped-call]
    return parts
