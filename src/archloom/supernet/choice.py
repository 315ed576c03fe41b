"""The places in a network where a decision runs: a choice between candidates, or the one that was chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from archloom.core.errors import SettingError
from archloom.fast import current_kernels, should_compile
from archloom.fast.fused import Fusible
from archloom.fast.network_plan import FeatureMap, NetworkPlanner, SumTerm, UnplannableError, describe_operation
from archloom.fast.partial import PartialFusible
from archloom.spaces import NONE, Decision
from archloom.supernet.gate import Gates

COMPILER = "inductor"  # the backend of torch.compile
RECOMPILE_LIMIT = 64  # shapes of cells; torch's own limit of 8 is too low for cells that widen and reduce
WITHOUT_MODULE = (NONE, "zero")  # options of a layer that compute nothing


class Choice(nn.Module):
    """Hold all candidates of a decision and run those that its gate names. `none` has no module.

    Returns None where nothing is connected, and computes nothing for it.
    """

    parts: int = 1  # the candidates run on one of so many parts of the channels; the others pass by

    def __init__(self, decision: Decision, candidates: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.decision = decision
        self.candidates = nn.ModuleDict(candidates)

    def forward(self, x: Tensor | None, gates: Gates, *arguments: Any) -> Tensor | None:
        """Run the gate of the decision; candidates are called with (x, *arguments)."""
        gate = gates[self.decision.name]
        if x is None:  # zero: every candidate returns zero, too
            result = None
        elif isinstance(gate.index, Tensor):
            result = self._run_per_image(x, gate.index, gate.weights)
        elif gate.index is not None:
            weight = None if gate.weights is None else gate.weights[..., gate.index]
            result = self._run_option(gate.index, x, weight, arguments)
        else:
            result = None if gate.weights is None else self._mix(x, gate.weights, arguments)
        if gate.offset is None:
            return result
        return gate.offset if result is None else result + gate.offset

    def _mix(self, x: Tensor, weights: Tensor, arguments: Sequence[Any]) -> Tensor | None:
        total: Tensor | None = None
        for number, weight in zip(range(len(self.decision.options)), weights.unbind(-1), strict=True):
            term = self._run_option(number, x, weight, arguments)
            if term is not None:
                total = term if total is None else total + term
        return total

    def _run_option(self, number: int, x: Tensor, weight: Tensor | None, arguments: Sequence[Any]) -> Tensor | None:
        option = self.decision.options[number]
        if option not in self.candidates:
            return None
        result: Tensor = self.candidates[option](x, *arguments)
        return result if weight is None else scale(result, weight)

    def _run_per_image(self, x: Tensor, index: Tensor, weights: Tensor | None) -> Tensor | None:
        """Run images that chose the same option together; those that chose `none` stay zero."""
        total: Tensor | None = None
        for number in sorted(set(index.tolist())):
            rows = (index == number).nonzero().squeeze(1)
            weight = None
            if weights is not None:
                weight = (weights if weights.dim() == 1 else weights.index_select(0, rows))[..., number]
            result = self._run_option(number, x.index_select(0, rows), weight, ())
            if result is None:
                continue
            if total is None:
                total = result.new_zeros((len(x), *result.shape[1:]))
            total = total.index_add(0, rows, result)
        return total


class LayerChoice(Choice):
    """A choice between layers that need more than an image: a width, or gates of their own.

    It is built from the options that a network has: all of them in a supernet, one in a standalone network. A single
    option needs no gate.
    """

    def __init__(self, name: str, options: Sequence[str], make: Callable[[str], nn.Module]) -> None:
        candidates = {option: make(option) for option in options if option not in WITHOUT_MODULE}
        super().__init__(Decision(name, tuple(options)), candidates)

    def forward(self, x: Tensor | None, gates: Gates | None, *arguments: Any) -> Tensor | None:
        """Return the result of the gate, or of the only option if there is one."""
        if len(self.decision.options) == 1 and x is not None:
            return self._run_option(0, x, None, arguments)
        return super().forward(x, gates or {}, *arguments)

    def runs_several(self, gates: Gates | None) -> bool:
        """Return whether the gate runs more than one option."""
        return len(self.decision.options) > 1 and (gates or {})[self.decision.name].index is None

    def _run_per_image(self, x: Tensor, index: Tensor, weights: Tensor | None) -> Tensor | None:
        raise SettingError(
            f"the images of a batch cannot take different paths at '{self.decision.name}': use one path for all"
        )


def scale(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply by one weight, or by one weight per image."""
    return x * (weight if weight.dim() == 0 else weight.view(-1, *[1] * (x.dim() - 1)))


class Fixed(nn.Module):
    """The option of a decision that was made. Its parameters are named as in the Choice it came from."""

    def __init__(self, decision: Decision, option: str, candidates: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.decision = decision
        self.option = option
        self.candidates = nn.ModuleDict(candidates)
        self.drop_path: nn.Module | None = None  # applied to the result, where a network is trained with it

    @property
    def is_identity(self) -> bool:
        """Return whether the result is the input itself."""
        return any(isinstance(candidate, nn.Identity) for candidate in self.candidates.values())

    def forward(self, x: Tensor, gates: Gates | None = None) -> Tensor | None:
        """Return the result of the fixed option; None is zero."""
        if self.option not in self.candidates:
            return None
        result: Tensor = self.candidates[self.option](x)
        if self.drop_path is not None:
            result = self.drop_path(result)
        return result

    def describe(self, planner: NetworkPlanner, source: FeatureMap) -> list[SumTerm]:
        """Write down the fixed option for the compiled executor; no term is zero."""
        terms = [describe_operation(planner, module, source) for module in self.candidates.values()]
        return terms if self.drop_path is None else [planner.drop(term, self.drop_path) for term in terms]


class Dag(nn.Module):
    """The states of a cell: each is the sum over its incoming edges. `outputs` are the states returned, by default all.

    Where all edges are choices, the cell runs as one function if possible (see `fused`). The code here is what that
    function is tested against. It runs where the images of a batch take different paths, and for second derivatives.

    Args:
        edges: the module of each edge (from, to), called with (x, gates).
        strides: the stride of each edge.
        outputs: the states to return.

    Examples:
        >>> import archloom, torch
        >>> decision = archloom.Decision("0->1", ("none", "skip"))
        >>> edge = archloom.EveryOption().operation(decision, lambda option: torch.nn.Identity())
        >>> cell = archloom.Dag({(0, 1): edge}, {(0, 1): 1}, outputs=[1])
        >>> cell([torch.ones(1, 2, 3, 3)], {"0->1": archloom.Gate(index=0)})[0].sum()  # `none` adds nothing
        tensor(0.)
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
        self._fusible = _fuse(edges, strides)

    def forward(self, inputs: list[Tensor], gates: Gates | None) -> list[Tensor]:
        """Return the output states, computed by fast kernels where they apply."""
        states = self._run_fast(inputs, gates)
        if states is None:
            states = self._run_edge_by_edge(inputs, gates)
        return [states[number] if number in states else self._zeros(states, number) for number in self._outputs]

    def describe(self, planner: NetworkPlanner, source: FeatureMap) -> FeatureMap:
        """Write down a cell of one input and one output, whose options are fixed, for the compiled executor."""
        states = {0: source}
        for target in sorted(self._incoming):
            states[target] = planner.add(self._describe_terms(planner, states, target), like=source)
        (output,) = self._outputs
        return states[output]

    def describe_concatenation(self, planner: NetworkPlanner, inputs: Sequence[FeatureMap]) -> FeatureMap:
        """Write down a cell whose outputs are concatenated, which are all states but its inputs."""
        states = dict(enumerate(inputs))
        if self._outputs != tuple(sorted(self._incoming)):
            raise UnplannableError
        parts: list[FeatureMap] = []
        for number, target in enumerate(self._outputs):
            terms = self._describe_terms(planner, states, target)
            if not terms:
                raise UnplannableError
            if not parts:
                parts = planner.concatenate(terms[0].source, len(self._outputs))
            states[target] = planner.add(terms, like=parts[number], into=parts[number])
        return parts[0].root

    def _describe_terms(self, planner: NetworkPlanner, states: Mapping[int, FeatureMap], target: int) -> list[SumTerm]:
        terms: list[SumTerm] = []
        for number in self._incoming[target]:
            edge = self.edges[f"{number}->{target}"]
            if not isinstance(edge, Fixed):
                raise UnplannableError
            terms += edge.describe(planner, states[number])
        return terms

    def _run_fast(self, inputs: list[Tensor], gates: Gates | None) -> dict[int, Tensor] | None:
        """Return the states by the compiled or fused cell, None where these gates have neither."""
        if gates is None:
            return None
        if should_compile() and torch.is_grad_enabled() and all(gate.index is None for gate in gates.values()):
            return self._run_compiled(inputs, gates)
        kernels = current_kernels()
        if kernels is None or self._fusible is None:
            return None
        states = self._fusible.run(kernels, inputs, gates, self._outputs)
        return None if states is None else {**dict(enumerate(inputs)), **states}

    def _run_compiled(self, inputs: list[Tensor], gates: Gates) -> dict[int, Tensor]:
        """Run a mixture by torch.compile: it is the same code at every step. Sampled paths would recompile at each.

        Cells of one shape share the compiled code. Each shape is compiled twice: for weight and architecture steps.
        """
        try:
            with torch._dynamo.config.patch(recompile_limit=RECOMPILE_LIMIT):
                return _compile_dag(COMPILER)(self, inputs, gates)
        except torch._dynamo.exc.TorchDynamoException as error:
            reason = str(error).strip().splitlines()[0]
            raise SettingError(f"machine.kernels 'compile' does not work here ({reason}); use 'auto'") from error

    def _run_edge_by_edge(self, inputs: list[Tensor], gates: Gates | None) -> dict[int, Tensor]:
        """Return all states that some path reaches. The others are zero, and choices that only see zeros do not run."""
        states = dict(enumerate(inputs))
        for target in sorted(self._incoming):
            state = self._sum_edges(states, target, gates)
            if state is None and self._fusible is None:  # a module that is not a choice may not map zero to zero
                state = self._zeros(states, target)
            if state is not None:
                states[target] = state
        return states

    def _sum_edges(self, states: dict[int, Tensor], target: int, gates: Gates | None) -> Tensor | None:
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
def _compile_dag(backend: str) -> Callable[..., dict[int, Tensor]]:
    return torch.compile(Dag._run_edge_by_edge, dynamic=False, backend=backend)


def _fuse(
    edges: Mapping[tuple[int, int], nn.Module], strides: Mapping[tuple[int, int], int]
) -> Fusible | PartialFusible | None:
    """Return the cell as a fusible one, None where an edge is not a choice."""
    choices = {edge: module for edge, module in edges.items() if isinstance(module, Choice)}
    parts = {choice.parts for choice in choices.values()}
    if len(choices) < len(edges) or len(parts) != 1:
        return None
    candidates = {edge: (choice.decision, choice.candidates) for edge, choice in choices.items()}
    return Fusible(candidates) if parts == {1} else PartialFusible(candidates, strides, parts=parts.pop())
