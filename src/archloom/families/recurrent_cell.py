"""The recurrent cell at one time step: what gates say of its nodes, and the step itself in plain torch.

All candidates of a node share one product: a matrix depends neither on the activation nor on the state that is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from archloom.core.errors import SettingError
from archloom.spaces import NONE
from archloom.spaces.recurrent import Recurrent
from archloom.supernet import Gate, Gates

Activation = Callable[[Tensor], Tensor]

ACTIVATIONS: Mapping[str, Activation] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "identity": lambda value: value,
}


@dataclass(frozen=True)
class NodePlan:
    """How one node runs: the edges that are open, in the order of their activations.

    A mixture has all activations on every edge, with `mixture` as their weights. Otherwise each edge has one, and edges
    of one activation are neighbours: `blocks` says which activation has which edges.
    """

    sources: tuple[int, ...]  # the state that each open edge reads
    mixture: Tensor | None = None  # [edges, activations]
    blocks: tuple[tuple[str, int, int], ...] = ()  # an activation, its first edge, and the one after its last
    weights: Tensor | None = None  # [edges] of hard samples with gradient; None where all are 1


@dataclass(frozen=True)
class CellPlan:
    """How a cell runs during one segment."""

    nodes: tuple[NodePlan, ...]
    outputs: tuple[int, ...]  # the states that are averaged


def plan_cell(space: Recurrent, gates: Gates) -> CellPlan:
    """Return how the cell runs with these gates."""
    nodes = tuple(_plan_node(space, node, gates) for node in range(1, space.nodes + 1))
    everything = tuple(range(1, space.nodes + 1))
    is_mixed = any(plan.mixture is not None for plan in nodes)
    if space.output == "all" or is_mixed:  # in a mixture every state is read
        return CellPlan(nodes, everything)
    read = {source for plan in nodes for source in plan.sources}
    return CellPlan(nodes, tuple(state for state in everything if state not in read))


def _plan_node(space: Recurrent, node: int, gates: Gates) -> NodePlan:
    edges = [(source, space.edge_name(source, node)) for source in range(node)]
    given = [(source, name, gates[name]) for source, name in edges if name in gates]
    if any(isinstance(gate.index, Tensor) for _, _, gate in given):
        raise SettingError(
            "a recurrent cell needs one path for the whole batch, since a path per sequence would be another cell at "
            "each; set strategy.sampling = 'batch'"
        )
    if any(gate.offset is not None for _, _, gate in given):
        raise SettingError("a recurrent cell knows no gradient 'nb201_code'; set strategy.gradient = 'selected'")
    if given and all(gate.index is None and gate.weights is not None for _, _, gate in given):
        return _plan_mixture(space, given)
    return _plan_path(space, given)


def _plan_mixture(space: Recurrent, given: Sequence[tuple[int, str, Gate]]) -> NodePlan:
    rows = [_select_real(space, name, gate) for _, name, gate in given]
    return NodePlan(tuple(source for source, _, _ in given), mixture=torch.stack(rows))


def _select_real(space: Recurrent, name: str, gate: Gate) -> Tensor:
    """Return the weights of the activations of an edge, zero for those that a restricted space does not offer."""
    assert gate.weights is not None
    options = space.decision(name).options
    if options == (NONE, *space.activations):
        return gate.weights[1:]
    zero = gate.weights.new_zeros(())
    parts = [gate.weights[options.index(one)] if one in options else zero for one in space.activations]
    return torch.stack(parts)


def _plan_path(space: Recurrent, given: Sequence[tuple[int, str, Gate]]) -> NodePlan:
    """Return the plan of a node whose open edges have one activation each."""
    opened: list[tuple[int, int, Tensor | None]] = []  # place of the activation, state, weight
    for source, name, gate in given:
        if gate.index is None:
            continue
        assert isinstance(gate.index, int), "checked before"
        option = space.decision(name).options[gate.index]
        if option != NONE:
            weight = None if gate.weights is None else gate.weights[gate.index]
            opened.append((space.activations.index(option), source, weight))
    opened.sort(key=lambda edge: edge[:2])
    blocks: list[tuple[str, int, int]] = []
    for place, activation in enumerate(space.activations):
        own = [number for number, edge in enumerate(opened) if edge[0] == place]
        if own:
            blocks.append((activation, own[0], own[-1] + 1))
    weights = [weight for _, _, weight in opened if weight is not None]
    return NodePlan(
        tuple(source for _, source, _ in opened),
        blocks=tuple(blocks),
        weights=torch.stack(weights) if weights else None,
    )


@dataclass(frozen=True)
class CellWeights:
    """The weights of a cell, and the masks of one segment."""

    hidden: Tensor  # [H, 2H], multiplies the last output
    nodes: Tensor  # [nodes, H, 2H]
    mask: Tensor | None  # [B, H], multiplies every state where a matrix does; None for no dropout
    normalized: bool

    def normalize(self, state: Tensor) -> Tensor:
        """Return a state with batch statistics removed, where the cell does that."""
        return F.batch_norm(state, None, None, training=True) if self.normalized else state

    def drop(self, state: Tensor) -> Tensor:
        """Return a state as a matrix sees it."""
        return state if self.mask is None else state * self.mask


def run_step(plan: CellPlan, weights: CellWeights, given: Tensor, output: Tensor, activations: Sequence[str]) -> Tensor:
    """Return the next output of a cell.

    Args:
        plan: how the nodes run.
        weights: the matrices and masks.
        given: the input of the step through its matrix, [B, 2H].
        output: the last output, [B, H].
        activations: the columns of a mixture.
    """
    gate, candidate = (given + weights.drop(output) @ weights.hidden).chunk(2, dim=-1)
    states = [weights.normalize(output + torch.sigmoid(gate) * (torch.tanh(candidate) - output))]
    for node, matrix in zip(plan.nodes, weights.nodes.unbind(), strict=True):
        if node.sources:
            states.append(weights.normalize(_run_node(node, matrix, weights, states, activations)))
        else:
            states.append(torch.zeros_like(output))
    return _mean([states[number] for number in plan.outputs])


def _run_node(
    node: NodePlan, matrix: Tensor, weights: CellWeights, states: Sequence[Tensor], activations: Sequence[str]
) -> Tensor:
    """Return the sum over the open edges of a node; all of them share one product."""
    read = torch.stack([states[source] for source in node.sources])  # [edges, B, H]
    gate, candidate = (weights.drop(read) @ matrix).chunk(2, dim=-1)
    gate = torch.sigmoid(gate)
    if node.mixture is not None:
        shares = node.mixture.t()[:, :, None, None]  # [activations, edges, 1, 1]
        terms = [share * ACTIVATIONS[name](candidate) for share, name in zip(shares, activations, strict=True)]
        mixed = torch.stack(terms).sum(dim=0)
        kept = shares.sum(dim=0) * read
        return (kept + gate * (mixed - kept)).sum(dim=0)
    parts = [ACTIVATIONS[name](candidate[first:last]) for name, first, last in node.blocks]
    activated = parts[0] if len(parts) == 1 else torch.cat(parts)
    moved = read + gate * (activated - read)
    if node.weights is not None:
        moved = node.weights[:, None, None] * moved
    return moved.sum(dim=0)


def _mean(states: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(states)).mean(dim=0)
