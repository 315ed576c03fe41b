"""The last decision between a few architectures: train each by itself for a short while, as deep as it will be.

A supernet is shallow and narrow, and its weights serve every architecture at once: it cannot feel what depth asks for.
Where a strategy names several architectures that may be the best, a short training of each at full depth can. The
best third goes on for three times as long, until one is left (successive halving: every round costs the same).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from archloom.data.loader import Loader
from archloom.spaces import Architecture
from archloom.supernets import SharedWeights

KEPT = 3  # one in so many goes on, and for so many times as long

Begin = Callable[[Architecture], SharedWeights]
"""A network of one architecture with fresh weights, and its optimizer."""


@dataclass
class Finalist:
    """An architecture, its own weights, and how far it has come."""

    architecture: Architecture
    weights: SharedWeights
    steps: int = 0
    loss: float = math.inf  # on validation images
    accuracy: float = 0.0


class Finals:
    """Trains finalists on the same batches and judges them on the same images."""

    def __init__(self, begin: Begin, *, train: Loader, judge: Loader, steps: int) -> None:
        self._begin, self._train, self._judge, self._steps = begin, train, judge, steps

    def winner(
        self,
        architectures: Sequence[Architecture],
        *,
        tell: Callable[[str], None] = lambda what: None,
        before_step: Callable[[], None] = lambda: None,
    ) -> tuple[Architecture, list[dict[str, Any]]]:
        """The one that is left, and how each of them did when it was last judged, the best first.

        `before_step` may raise to stop.
        """
        racing = [Finalist(architecture, self._begin(architecture)) for architecture in architectures]
        everyone, steps = list(racing), self._steps
        while True:
            for place, finalist in enumerate(racing, start=1):
                tell(f"training finalist {place} of {len(racing)} for {steps} steps")
                self._train_on(finalist, steps, before_step)
            racing.sort(key=lambda finalist: finalist.loss)  # stable: who was named first wins a tie
            if len(racing) <= KEPT:
                break
            racing, steps = racing[: math.ceil(len(racing) / KEPT)], KEPT * steps
        everyone.sort(key=lambda finalist: (-finalist.steps, finalist.loss))
        return everyone[0].architecture, [_told(finalist) for finalist in everyone]

    def _train_on(self, finalist: Finalist, steps: int, before_step: Callable[[], None]) -> None:
        for position in range(finalist.steps, finalist.steps + steps):
            before_step()
            finalist.weights.fit(self._train.batch(*divmod(position, self._train.steps)), {})
        finalist.steps += steps
        losses, rights, images = 0.0, 0.0, 0
        with torch.no_grad():  # by the batch's own statistics: running ones lag behind a short training
            for batch in self._judge.epoch(0):
                outcome = finalist.weights.evaluate(batch, {})
                losses += float(outcome.loss) * len(batch)
                rights += float(outcome.accuracy) * len(batch)
                images += len(batch)
        finalist.loss = losses / images if math.isfinite(losses) else math.inf
        finalist.accuracy = rights / images


def _told(finalist: Finalist) -> dict[str, Any]:
    return {
        "architecture": dict(finalist.architecture),
        "steps": finalist.steps,
        "valid_loss": finalist.loss if math.isfinite(finalist.loss) else None,
        "valid_accuracy": finalist.accuracy,
    }
