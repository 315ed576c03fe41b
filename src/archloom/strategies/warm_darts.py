"""What the successors of DARTS share: epochs that train the weights alone, and clipped gradients of the logits."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import torch
from annotated_doc import Doc
from torch import Tensor

from archloom.core.errors import require
from archloom.spaces import SearchSpace
from archloom.strategies.base import Metrics, SearchBatch, metrics
from archloom.strategies.darts import Darts
from archloom.strategies.step_size import TRAVEL
from archloom.supernet import SharedWeights


class WarmDarts(Darts):
    """DARTS that spends nothing on the logits while it warms up, and may clip their gradient."""

    travel: ClassVar[float] = 2 * TRAVEL  # published with twice the learning rate of DARTS

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        learning_rate: Annotated[
            float | None, Doc("of Adam on the architecture parameters; left out: by the number of steps")
        ] = None,
        clip: Annotated[float, Doc("largest norm of the logits' gradient; 0: no clipping")] = 0.0,
        **common: Any,
    ) -> None:
        require({f"strategy.clip must be 0 (off) or more, got {clip}": clip >= 0})
        self._clip = clip
        super().__init__(space, generator, learning_rate=learning_rate, **common)

    def step(self, weights: SharedWeights, batch: SearchBatch) -> Metrics:
        """Update the logits, then the weights; in the warm-up the weights alone."""
        if self.is_warming_up(batch):
            return metrics(weights.fit(batch.train, self.policy.mixture()))
        return super().step(weights, batch)

    def descend(self, gradient: Tensor, batch: SearchBatch) -> None:
        """Take an optimizer step along the clipped gradient."""
        super().descend(clip_norm(gradient, self._clip), batch)


def clip_norm(gradient: Tensor, largest: float) -> Tensor:
    """Return the gradient, scaled down to a norm; 0 leaves it as it is."""
    norm = float(gradient.norm())
    return gradient * (largest / norm) if largest and norm > largest else gradient
