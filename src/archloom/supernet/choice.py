"""The place in a network where a decision is carried out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import torch
from torch import Tensor, nn

from archloom.core.errors import SettingError
from archloom.fast import compiling, current
from archloom.fast.fused import Fusible
from archloom.spaces import Decision
from archloom.supernet.gate import Gate, Gates

COMPILER = "inductor"  # of torch.compile
SHAPES = 64  # of cells that are compiled, at most; torch's own limit of 8 is too low for cells that widen and reduce


class Choice(nn.Module):
    """All candidates of a decision; the decision's gate says which of them run. `none` has no module.

    Returns None where nothing is connected, so that nothing is computed for it.
    """

    def __init__(self, decision: Decision, candidates: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.decision = decision
        self.candidates = nn.ModuleDict(candidates)

    def forward(self, x: Tensor | None, gates: Gates) -> Tensor | None:
        gate = gates[self.decision.name]
        if x is None:  # zero: so is every candidate's result
            result = None
        elif gate.index is None:
            result = None if gate.weights is None else self._mixture(x, gate.weights)
        elif isinstance(gate.index, Tensor):
            result = self._per_image(x, gate.index, gate.weights)
        else:
            result = self._single(x, gate.index, gate)
        if gate.offset is None:
            return result
        return gate.offset if result is None else result + gate.offset

    def _mixture(self, x: Tensor, weights: Tensor) -> Tensor | None:
        total: Tensor | None = None
        for option, weight in zip(self.decision.options, weights.unbind(-1), strict=True):
            if option in self.candidates:
                term = _scaled(self.candidates[option](x), weight)
                total = term if total is None else total + term
        return total

    def _single(self, x: Tensor, index: int, gate: Gate) -> Tensor | None:
        option = self.decision.options[index]
        if option not in self.candidates:
            return None
        result: Tensor = self.candidates[option](x)
        return result if gate.weights is None else _scaled(result, gate.weights[..., index])

    def _per_image(self, x: Tensor, index: Tensor, weights: Tensor | None) -> Tensor | None:
        """Images that chose the same option go through it together; those that chose `none` stay zero."""
        total: Tensor | None = None
        for number in sorted(set(index.tolist())):
            option = self.decision.options[number]
            if option not in self.candidates:
                continue
            rows = (index == number).nonzero().squeeze(1)
            result: Tensor = self.candidates[option](x.index_select(0, rows))
            if weights is not None:
                own = weights if weights.dim() == 1 else weights.index_select(0, rows)
                result = _scaled(result, own[..., number])
            if total is None:
                total = result.new_zeros((len(x), *result.shape[1:]))
            total = total.index_add(0, rows, result)
        return total


def _scaled(x: Tensor, weight: Tensor) -> Tensor:
    """x times one weight, or times one weight per image."""
    return x * (weight if weight.dim() == 0 else weight.view(-1, *[1] * (x.dim() - 1)))


class Fixed(nn.Module):
    """A decision already taken. Its parameters are named as in the Choice it came from."""

    def __init__(self, decision: Decision, option: str, candidates: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.decision = decision
        self.option = option
        self.candidates = nn.ModuleDict(candidates)
        self.drop_path: nn.Module | None = None  # put on the result, where a network is trained with it

    @property
    def is_identity(self) -> bool:
        """Whether it hands on its input as it is."""
        return any(isinstance(candidate, nn.Identity) for candidate in self.candidates.values())

    def forward(self, x: Tensor, gates: Gates | None = None) -> Tensor | None:
        if self.option not in self.candidates:
            return None
        result: Tensor = self.candidates[self.option](x)
        if self.drop_path is not None:
            result = self.drop_path(result)
        return result


class Dag(nn.Module):
    """States of a cell: each is the sum of what its incoming edges give. `outputs` are those returned, all if left out.

    Where all edges are choices, the cell runs as one function if that can be (see `fused`); the code here is what that
    is tested against, and what runs where the images of a batch go different ways or second derivatives are needed.
    """

    def __init__(
        self,
        edges: Mapping[tuple[int, int], nn.Module],
        strides: Mapping[tuple[int, int], int],
        *,
        outputs: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.edges = nn.ModuleDict({f"{source}->{target}": module for (source, target), module in edges.items()})
        self._incoming: dict[int, list[int]] = {}
        for source, target in edges:
            self._incoming.setdefault(target, []).append(source)
        self._strides = dict(strides)
        self._outputs = tuple(range(1 + max(self._incoming)) if outputs is None else outputs)
        self._fusible = _fusible(edges)

    def forward(self, inputs: list[Tensor], gates: Gates | None) -> list[Tensor]:
        states = self._at_once(inputs, gates)
        if states is None:
            states = self._edge_by_edge(inputs, gates)
        return [states[number] if number in states else self._zeros(states, number) for number in self._outputs]

    def _at_once(self, inputs: list[Tensor], gates: Gates | None) -> dict[int, Tensor] | None:
        """The states by a faster way than edge by edge, where there is one for these gates."""
        if gates is None:
            return None
        if compiling() and torch.is_grad_enabled() and all(gate.index is None for gate in gates.values()):
            return self._compiled(inputs, gates)
        kernels = current()
        if kernels is None or self._fusible is None:
            return None
        states = self._fusible.run(kernels, inputs, gates, self._outputs)
        return None if states is None else {**dict(enumerate(inputs)), **states}

    def _compiled(self, inputs: list[Tensor], gates: Gates) -> dict[int, Tensor]:
        """A mixture runs the same code at every step; a sampled path would be compiled anew at each.

        Cells of one shape share what was compiled, and each shape has it twice: for weight and architecture steps.
        """
        try:
            with torch._dynamo.config.patch(recompile_limit=SHAPES):
                return _compiled_dag(COMPILER)(self, inputs, gates)
        except torch._dynamo.exc.TorchDynamoException as error:
            reason = str(error).strip().splitlines()[0]
            raise SettingError(f"machine.kernels 'compile' does not work here ({reason}); take 'auto'") from error

    def _edge_by_edge(self, inputs: list[Tensor], gates: Gates | None) -> dict[int, Tensor]:
        """All states but those that nothing reaches: they are zero, and choices that only see zeros do not run."""
        states = dict(enumerate(inputs))
        for target in sorted(self._incoming):
            state = self._state(states, target, gates)
            if state is None and self._fusible is None:  # what is not a choice may make something of zeros
                state = self._zeros(states, target)
            if state is not None:
                states[target] = state
        return states

    def _state(self, states: dict[int, Tensor], target: int, gates: Gates | None) -> Tensor | None:
        total: Tensor | None = None
        for source in self._incoming[target]:
            term = self.edges[f"{source}->{target}"](states.get(source), gates)
            if term is not None:
                total = term if total is None else total + term
        if total is None or total.dim() > 0:
            return total
        return self._zeros(states, target) + total

    def _zeros(self, states: dict[int, Tensor], target: int) -> Tensor:
        source = self._incoming[target][0]
        stride = self._strides[source, target]
        like = states[source] if source in states else self._zeros(states, source)
        return torch.zeros_like(like[:, :, ::stride, ::stride])


@cache
def _compiled_dag(backend: str) -> Callable[..., dict[int, Tensor]]:
    return torch.compile(Dag._edge_by_edge, dynamic=False, backend=backend)


def _fusible(edges: Mapping[tuple[int, int], nn.Module]) -> Fusible | None:
    """None where an edge is something else than a choice."""
    choices = {edge: module for edge, module in edges.items() if isinstance(module, Choice)}
    if len(choices) < len(edges):
        return None
    return Fusible({edge: (choice.decision, choice.candidates) for edge, choice in choices.items()})
