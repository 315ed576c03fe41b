"""The last decision: train a few architectures by themselves for a short while, as deep as they will be.

A supernet is shallow and narrow, and its weights serve every architecture at once: it cannot feel what depth asks for.
Where a strategy names changes to its architecture that may be for the better, a short training of each at full depth
can. A change that helps is kept and the next one tried on top of it; what did best is trained once more, for longer.
A short training is noise as well, and shows how fast a network learns and not how far it gets: it is evidence beside
what the search believes and how large the network is, not instead of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional as F

from archloom.data.loader import Batch, Loader
from archloom.spaces import Architecture
from archloom.supernets import SharedWeights

KEPT = 4  # so many are trained once more, and for so many times as long

Begin = Callable[[Architecture], SharedWeights]
"""A network of one architecture with fresh weights, and its optimizer."""


@dataclass(frozen=True)
class Trained:
    """How an architecture did after a short training."""

    architecture: Architecture
    steps: int
    loss: float  # on validation images; infinite where it diverged
    accuracy: float
    belief: float  # log-probability by the search
    parameters: int

    def told(self) -> dict[str, Any]:
        return {
            "architecture": dict(self.architecture),
            "steps": self.steps,
            "valid_loss": self.loss if math.isfinite(self.loss) else None,
            "valid_accuracy": self.accuracy,
            "belief": self.belief,
            "parameters": self.parameters,
        }


@dataclass(frozen=True)
class Weighing:
    """What counts beside the validation loss of a short training, and how much, in its units."""

    belief: float = 0.0  # a unit of the search's log-probability
    size: float = 0.0  # a unit of the logarithm of the number of parameters

    def standing(self, one: Trained) -> float:
        """The less the better."""
        return one.loss - self.belief * one.belief - self.size * math.log(max(one.parameters, 1))


class Finals:
    """Trains finalists on the same batches and judges them on the same images."""

    def __init__(
        self,
        begin: Begin,
        *,
        train: Loader,
        judge: Loader,
        steps: int,
        sweeps: int = 2,
        shrink: int = 1,
        beside: Weighing | None = None,
    ) -> None:
        self._begin, self._train, self._judge = begin, train, judge
        self._steps, self._sweeps, self._shrink, self._beside = steps, sweeps, shrink, beside or Weighing()

    def winner(
        self,
        architectures: Sequence[Architecture],
        *,
        belief: Callable[[Architecture], float] = lambda architecture: 0.0,
        allowed: Callable[[Architecture], bool] = lambda architecture: True,
        tell: Callable[[str], None] = lambda what: None,
        before_step: Callable[[], None] = lambda: None,
    ) -> tuple[Architecture, list[dict[str, Any]]]:
        """The one that did best, and how each that was trained did, the best first.

        The first architecture is where it starts; what the others have instead are the changes that are tried.
        `before_step` may raise to stop.
        """
        short: dict[Architecture, Trained] = {}

        def trained(architecture: Architecture, steps: int) -> Trained:
            return self._trained(architecture, steps, belief(architecture), before_step)

        def standing(architecture: Architecture) -> float:
            if architecture not in short:
                tell(f"training finalist {len(short) + 1} for {self._steps} steps")
                short[architecture] = trained(architecture, self._steps)
            return self._beside.standing(short[architecture])

        self._climb(architectures, standing, allowed)
        ranked = self._ranked(short.values())
        long, steps = [], KEPT * self._steps
        for place, one in enumerate(ranked[:KEPT], start=1):
            tell(f"training the best again for {steps} steps, {place} of {min(KEPT, len(ranked))}")
            long.append(trained(one.architecture, steps))
        everyone = [*self._ranked(long), *ranked[KEPT:]]
        return everyone[0].architecture, [one.told() for one in everyone]

    def _ranked(self, some: Iterable[Trained]) -> list[Trained]:
        return sorted(some, key=self._beside.standing)  # stable: who came first wins a tie

    def _climb(
        self,
        architectures: Sequence[Architecture],
        standing: Callable[[Architecture], float],
        allowed: Callable[[Architecture], bool],
    ) -> None:
        """Try each change on top of those that helped, all of them again until none does or the sweeps are over."""
        first, *others = architectures
        changes = [_new_in(one, first) for one in others]
        changes += [change for change in (_new_in(first, one) for one in others) if change not in changes]
        best = first
        standing(best)
        for _ in range(self._sweeps):
            before = best
            for change in changes:
                changed = Architecture({**best, **change})
                if changed != best and allowed(changed) and standing(changed) < standing(best):
                    best = changed
            if best == before:
                break

    def _trained(
        self, architecture: Architecture, steps: int, belief: float, before_step: Callable[[], None]
    ) -> Trained:
        weights = self._begin(architecture)
        for step in range(steps):
            before_step()
            weights.set_progress(_along(step, steps))
            weights.fit(self._seen(self._train.batch(*divmod(step, self._train.steps))), {})
        losses, rights, images = 0.0, 0.0, 0
        with torch.no_grad():  # by the batch's own statistics: running ones lag behind a short training
            for batch in map(self._seen, self._judge.epoch(0)):
                outcome = weights.evaluate(batch, {})
                losses += float(outcome.loss) * len(batch)
                rights += float(outcome.accuracy) * len(batch)
                images += len(batch)
        loss = losses / images if math.isfinite(losses) else math.inf
        size = sum(parameter.numel() for parameter in weights.parameters.values())
        return Trained(architecture, steps, loss, rights / images, belief, size)

    def _seen(self, batch: Batch) -> Batch:
        """The images as finalists see them: smaller, by the mean over squares."""
        return batch if self._shrink == 1 else replace(batch, images=F.avg_pool2d(batch.images, self._shrink))


def _along(step: int, steps: int) -> float:
    """Where on its cosine the learning rate is: it rises over the first sixth of the steps, then falls to its end."""
    rise = steps // 6
    return 1 - (step + 1) / (rise + 1) if step < rise else (step - rise) / (steps - rise)


def _new_in(one: Architecture, other: Architecture) -> Mapping[str, str]:
    return {name: option for name, option in one.items() if other[name] != option}
