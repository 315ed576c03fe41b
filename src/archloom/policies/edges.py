"""Logits of options and of edges: the weight of an edge is a softmax over the edges into its node (Xu et al., 2020)."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from archloom.core.errors import SettingError
from archloom.policies.logits import Logits
from archloom.spaces import Scores, SearchSpace
from archloom.supernet import Gate, Gates


class EdgeLogits(Logits):
    """Logits of every option, followed by one of every edge, in the same flat parameter.

    A gate weighs an option by its probability times the weight of its edge. The weights of a gate sum to that of the
    edge.
    """

    def __init__(
        self, space: SearchSpace, generator: torch.Generator, *, spread: float = 1e-3, without: Collection[str] = ()
    ) -> None:
        super().__init__(space, generator, spread=spread, without=without)
        self._nodes = [node.inputs for node in space.cell_nodes]
        if not self._nodes:
            raise SettingError(
                f"the space must be made of cells, whose nodes sum edges, got {type(space).__name__}; "
                "use the space darts or nb201, or another strategy"
            )
        self._options = self.values.numel()
        edges = spread * torch.randn(sum(map(len, self._nodes)), generator=generator)
        self.values = nn.Parameter(torch.cat([self.values.detach(), edges]))

    def split(self, values: Tensor) -> dict[str, Tensor]:
        """Split the logits of options by decision."""
        return super().split(values[..., : self._options])

    def edge_weights(self, values: Tensor | None = None) -> dict[str, Tensor]:
        """Return the weight of every edge; those into one node sum to 1."""
        given = (self.values if values is None else values)[..., self._options :]
        parts = torch.split(given, [len(names) for names in self._nodes], dim=-1)
        return {
            name: weight
            for names, part in zip(self._nodes, parts, strict=True)
            for name, weight in zip(names, part.softmax(dim=-1).unbind(-1), strict=True)
        }

    def mixture(self, values: Tensor | None = None) -> Gates:
        """Return gates that weight every option by its probability and by the weight of its edge."""
        rows, edges = self.split(self.values if values is None else values), self.edge_weights(values)
        return {name: Gate(weights=edges[name] * row.softmax(dim=0)) for name, row in rows.items()}

    def scores(self) -> Scores:
        """Return the weights of the mixture: they choose the operation of an edge, and the edges of a node."""
        return {name: gate.weights.tolist() for name, gate in self.mixture().items() if gate.weights is not None}

    def center(self, movement: Tensor) -> Tensor:
        """Project out what the softmax of a decision, or of the edges into a node, cannot see."""
        edges = torch.split(movement[..., self._options :], [len(names) for names in self._nodes], dim=-1)
        centered = [part - part.mean(dim=-1, keepdim=True) for part in edges]
        return torch.cat([super().center(movement[..., : self._options]), *centered], dim=-1)
