"""DARTS: descend on a softmax mixture of all operations, first or second order (Liu et al., 2019)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from archloom.errors import require
from archloom.spaces import SearchSpace
from archloom.strategies.base import Differentiable, Metrics, SearchBatch, metrics
from archloom.supernets import Curvature, Outcome, SharedWeights, flat, gradient_by

LOGITS = "logits"  # beside the weights, in a gradient by both


class Darts(Differentiable):
    """An architecture step on validation data, then a weight step on training data, both on the full mixture."""

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        order: Literal["first", "second"] = "first",  # second: through one virtual training step
        products: Literal["exact", "differences"] = "exact",  # how second order takes its curvature product
        difference_step: float = 0.01,  # of `differences`, relative to the vector
        **common: Any,
    ) -> None:
        super().__init__(space, generator, **common)
        require({f"strategy.difference_step must be above 0, got {difference_step}": difference_step > 0})
        self._second = order == "second"
        self._difference_step = difference_step if products == "differences" else None

    def step(self, weights: SharedWeights, batch: SearchBatch) -> Metrics:
        gradient, judged = self.gradient(weights, batch)
        self.descend(gradient, batch)
        fitted = weights.fit(batch.train, self.policy.mixture())
        return metrics(fitted, judged)

    def gradient(self, weights: SharedWeights, batch: SearchBatch) -> tuple[Tensor, Outcome]:
        """Of the validation loss by the logits, at the present weights or after one virtual training step."""
        if not self._second:
            judged = weights.evaluate(batch.valid, self.policy.mixture())
            return gradient_by(judged.loss, self.policy.values), judged
        # d/da L_valid(w - rate * dL_train/dw, a) = direct part - rate * (mixed second derivative of L_train) * v
        moved = weights.virtual_step(batch.train, self.policy.mixture())
        judged = weights.evaluate(batch.valid, self.policy.mixture(), parameters=moved)
        vector = weights.gradient(judged.loss, at={**moved, LOGITS: self.policy.values})
        direct = vector.pop(LOGITS)
        curvature = Curvature(weights, batch.train, self.policy.mixture, self.policy.values, step=self._difference_step)
        return direct - weights.learning_rate * curvature.mixed(flat(vector.values())), judged
