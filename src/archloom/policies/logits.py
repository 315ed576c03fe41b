"""Architecture parameters as one vector of logits, and the gates that can be made of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from archloom.spaces import Scores, SearchSpace
from archloom.supernets import Gate, Gates


class Logits(nn.Module):
    """One logit per option of every decision, kept in one flat parameter so that curvature can see them together."""

    def __init__(self, space: SearchSpace, generator: torch.Generator, *, spread: float = 1e-3) -> None:
        super().__init__()
        self._names = [decision.name for decision in space.decisions]
        self._sizes = [len(decision.options) for decision in space.decisions]
        self.values = nn.Parameter(spread * torch.randn(sum(self._sizes), generator=generator))

    def rows(self) -> dict[str, Tensor]:
        """The logits of each decision, as views."""
        return dict(zip(self._names, torch.split(self.values, self._sizes), strict=True))

    def mixture(self) -> Gates:
        """Every option, weighted by its probability."""
        return {name: Gate(weights=row.softmax(dim=0)) for name, row in self.rows().items()}

    def scores(self) -> Scores:
        """The probability of every option."""
        return {name: row.softmax(dim=0).tolist() for name, row in self.rows().items()}

    def adam(self, *, learning_rate: float, weight_decay: float) -> torch.optim.Adam:
        """The optimizer that the differentiable strategies use on their logits."""
        return torch.optim.Adam([self.values], lr=learning_rate, betas=(0.5, 0.999), weight_decay=weight_decay)
