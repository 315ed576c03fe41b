"""Architecture parameters as one vector of logits, and the mixture gates that they define."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from archloom.spaces import Scores, SearchSpace
from archloom.supernet import Gate, Gates


class Logits(nn.Module):
    """One logit per option of every decision, in one flat parameter: curvature sees all of them together.

    Excluded options keep their place, but have probability zero and no gradient.
    """

    def __init__(
        self, space: SearchSpace, generator: torch.Generator, *, spread: float = 1e-3, without: Collection[str] = ()
    ) -> None:
        super().__init__()
        self._names = [decision.name for decision in space.decisions]
        self._sizes = [len(decision.options) for decision in space.decisions]
        self.values = nn.Parameter(spread * torch.randn(sum(self._sizes), generator=generator))
        live = [
            option not in without or len(decision.options) == 1
            for decision in space.decisions
            for option in decision.options
        ]
        self.register_buffer("live", torch.tensor(live), persistent=False)
        self.live: Tensor

    def rows(self) -> dict[str, Tensor]:
        """Return the logits of each decision; minus infinity where an option is excluded."""
        return self.split(self.values)

    def split(self, values: Tensor) -> dict[str, Tensor]:
        """Split a vector like the logits, or several in rows, by decision."""
        if not bool(self.live.all()):
            values = values.masked_fill(~self.live.to(values.device), -torch.inf)
        return dict(zip(self._names, torch.split(values, self._sizes, dim=-1), strict=True))

    def shares(self) -> dict[str, Tensor]:
        """Return the probabilities of each decision, with gradient."""
        return {name: row.softmax(dim=0) for name, row in self.rows().items()}

    def mixture(self, values: Tensor | None = None) -> Gates:
        """Return gates that weight every option by its probability; at other logits if given."""
        rows = self.split(self.values if values is None else values)
        return {name: Gate(weights=row.softmax(dim=0)) for name, row in rows.items()}

    def probabilities(self) -> Scores:
        """Return the probability of every option."""
        return {name: row.softmax(dim=0).tolist() for name, row in self.rows().items()}

    def center(self, movement: Tensor) -> Tensor:
        """Project out what a softmax cannot see: the mean over a decision's options, and excluded options.

        The likelihood is constant along these directions, and the prior there is independent of the others.
        """
        live = self.live.to(movement)
        parts = zip(torch.split(movement * live, self._sizes, dim=-1), torch.split(live, self._sizes), strict=True)
        return torch.cat([part - mask * (part.sum(dim=-1, keepdim=True) / mask.sum()) for part, mask in parts], dim=-1)

    @property
    def free_directions(self) -> int:
        """Return in how many directions the logits can move once they are centred."""
        return sum(int(part.sum()) - 1 for part in torch.split(self.live, self._sizes))

    def adam(self, *, learning_rate: float, weight_decay: float, first_beta: float = 0.5) -> torch.optim.Adam:
        """Return the optimizer that the differentiable strategies use on their logits."""
        return torch.optim.Adam([self.values], lr=learning_rate, betas=(first_beta, 0.999), weight_decay=weight_decay)
