"""The gradient of the logits over several validation batches, as a closure for samplers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from archloom.data.loader import Batch
from archloom.policies import Logits
from archloom.supernet import SharedWeights, StepResult


class LogitGradient:
    """The mean validation loss under frozen weights, with one batch in memory at a time.

    It is a `BatchedClosure`: the gradients of single batches show how noisy their mean is.
    """

    in_turn = True  # the loader shuffles once per pass over the images

    def __init__(
        self,
        weights: SharedWeights,
        policy: Logits,
        batches: Sequence[Batch],
        *,
        images: int,  # of the whole validation split
        complete: Callable[[Tensor], Tensor] = lambda gradient: gradient,  # adds what does not depend on images
    ) -> None:
        self._weights, self._policy, self._batches, self._complete = weights, policy, batches, complete
        self.unseen = max(0.0, 1 - sum(map(len, batches)) / images)
        self.gradients: list[Tensor] = []
        self.result: StepResult | None = None  # of the first call

    def __call__(self) -> Tensor:
        """Set the gradient of the logits over all batches, and return the mean loss."""
        self.gradients, result = self._evaluate(self._batches)
        self._policy.values.grad = torch.stack(self.gradients).mean(dim=0)
        self.result = self.result or result
        return result.loss

    def repeat(self, count: int) -> Tensor:
        """Return the gradient over the first batches, at the present logits."""
        return torch.stack(self._evaluate(self._batches[:count])[0]).mean(dim=0)

    def _evaluate(self, batches: Sequence[Batch]) -> tuple[list[Tensor], StepResult]:
        """Return the gradient of each batch, and the mean loss and score; batches are of equal size."""
        values = self._policy.values
        gradients, results = [], []
        for batch in batches:
            result = self._weights.step_result(batch, self._policy.mixture())
            gradients.append(self._complete(self._weights.gradient(result.loss, of=values)))
            results.append(StepResult(result.loss.detach(), result.score, result.metric))  # without the graph
        loss, score = (torch.stack(parts).mean() for parts in zip(*((r.loss, r.score) for r in results), strict=True))
        return gradients, StepResult(loss, score, results[0].metric)
