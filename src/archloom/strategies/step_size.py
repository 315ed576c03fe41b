"""Step sizes of architecture parameters that follow from the planned number of steps.

Adam moves a parameter by about its learning rate at every step, whatever the scale of the loss. A constant learning
rate therefore moves logits ten times less in a search of a tenth of the steps, and a short search decides nothing.
Here the planned travel is constant: the sum of the learning rates of all architecture steps of a search.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

PUBLISHED_STEPS = 50 * 390  # of DARTS: 50 epochs of half of CIFAR-10 in batches of 64
TRAVEL = 3e-4 * PUBLISHED_STEPS  # of a logit, at the published learning rate
LARGEST = 0.1  # learning rate: beyond, a logit is decided by a handful of batches


@dataclass(frozen=True)
class StepSize:
    """The learning rate of Adam on architecture parameters: stated, or a travel divided by the number of steps.

    Attributes:
        stated: the learning rate if a user, a recipe or a preset states it.
        travel: the sum of the learning rates over all architecture steps, if it is not stated.
        largest: the largest learning rate that follows from the travel.
        smallest: the smallest one.
    """

    stated: float | None
    travel: float = TRAVEL
    largest: float = LARGEST
    smallest: float = 0.0

    def learning_rate(self, steps: float) -> float:
        """Return the learning rate of a search with so many architecture steps."""
        if self.stated is not None:
            return self.stated
        return max(self.smallest, min(self.travel / max(steps, 1.0), self.largest))

    def apply(self, optimizer: torch.optim.Optimizer, steps: float) -> None:
        """Set the learning rate of an optimizer for a search with so many architecture steps."""
        for group in optimizer.param_groups:
            group["lr"] = self.learning_rate(steps)
