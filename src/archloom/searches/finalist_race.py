"""The last decision: train a few architectures by themselves for a short while, as deep as they will be.

A supernet is shallow and narrow, and its weights serve every architecture at once: it cannot feel what depth asks for.
Where a strategy names changes to its architecture that may be for the better, a short training of each at full depth
can. A change that helps is kept and the next one tried on top of it; what did best is trained again, for longer, and
the best of these once more. A short training shows how fast a network learns and not how far it gets: beside it counts
how large the network is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch.nn import functional as F

from archloom.core.events import Record
from archloom.data.loader import Batch, Loader
from archloom.execution.hands import Ask, Hands
from archloom.spaces import Architecture
from archloom.supernet import SharedWeights

ROUNDS = ((6, 3), (2, 9))  # so many of the best are trained again, for so many times as long

Begin = Callable[[Architecture], SharedWeights]
"""A network of one architecture with fresh weights, and its optimizer."""


@dataclass(frozen=True)
class Trained:
    """How an architecture did after a short training."""

    architecture: Architecture
    steps: int
    loss: float  # on validation images; infinite where it diverged
    accuracy: float
    parameters: int

    def standing(self, size: float) -> float:
        """The less the better; `size` is what a unit of the logarithm of the parameters is worth in units of loss."""
        return self.loss - size * math.log(max(self.parameters, 1))

    @classmethod
    def of(cls, record: Record) -> Self:
        """What `told` told."""
        loss = record["valid_loss"]
        return cls(
            Architecture(record["architecture"]),
            record["steps"],
            math.inf if loss is None else loss,
            record["valid_accuracy"],
            record["parameters"],
        )

    def told(self) -> dict[str, Any]:
        return {
            "architecture": dict(self.architecture),
            "steps": self.steps,
            "valid_loss": self.loss if math.isfinite(self.loss) else None,
            "valid_accuracy": self.accuracy,
            "parameters": self.parameters,
        }


class ShortTraining:
    """Trains architectures on the same batches and judges them on the same images."""

    def __init__(self, begin: Begin, *, train: Loader, judge: Loader, shrink: int = 1) -> None:
        self._begin, self._train, self._judge, self._shrink = begin, train, judge, shrink

    def __call__(self, architecture: Architecture, steps: int, ask: Ask) -> Trained:
        weights = self._begin(architecture)
        for step in range(steps):
            ask()
            weights.set_progress(_along(step, steps))
            weights.fit(self._seen(self._train.batch(*divmod(step, self._train.steps))), {})
        losses, rights, images = 0.0, 0.0, 0
        with torch.no_grad():  # by the batch's own statistics: running ones lag behind a short training
            for batch in map(self._seen, self._judge.epoch(0)):
                outcome = weights.step_result(batch, {})
                losses += float(outcome.loss) * len(batch)
                rights += float(outcome.score) * len(batch)
                images += len(batch)
        loss = losses / images if math.isfinite(losses) else math.inf
        return Trained(architecture, steps, loss, rights / images, weights.parameter_count)

    def _seen(self, batch: Batch) -> Batch:
        """The images as finalists see them: smaller, by the mean over squares."""
        return batch if self._shrink == 1 else replace(batch, images=F.avg_pool2d(batch.images, self._shrink))


class Finals:
    """Decides between architectures by what `hands` find: they carry out short trainings."""

    def __init__(self, hands: Hands, *, steps: int, sweeps: int = 2, size: float = 0.0) -> None:
        self._hands, self._steps, self._sweeps, self._size = hands, steps, sweeps, size

    def winner(
        self,
        architectures: Sequence[Architecture],
        *,
        known: Iterable[Record] = (),
        allowed: Callable[[Architecture], bool] = lambda architecture: True,
        tell: Callable[[str], None] = lambda what: None,
        note: Callable[[Record], None] = lambda record: None,
        ask: Ask = lambda: None,
    ) -> tuple[Architecture, list[dict[str, Any]]]:
        """The one that did best, and how each that was trained did, the best first.

        The first architecture is where it starts; what the others have instead are the changes that are tried. What was
        noted before and is `known` again need not be trained again.
        """
        first, *others = architectures
        changes = [_new_in(one, first) for one in others]
        changes += [change for change in (_new_in(first, one) for one in others) if change not in changes]
        with self._hands as hands:
            trainings = _Trainings(hands, known, note, ask)
            climb = _Climb(trainings, self._steps, self._size, tell)
            best = climb.look_at(first, [one for one in others if allowed(one)])
            for _ in range(self._sweeps):
                before, best = best, climb.sweep(best, changes, allowed)
                if best == before:
                    break
            everyone = self._ranked(climb.seen)
            for count, longer in ROUNDS:
                steps, chosen = longer * self._steps, everyone[:count]
                tell(f"training the best {len(chosen)} again for {steps} steps")
                everyone[:count] = self._ranked(trainings.of([one.architecture for one in chosen], steps))
        return everyone[0].architecture, [one.told() for one in everyone]

    def _ranked(self, some: Iterable[Trained]) -> list[Trained]:
        return sorted(some, key=lambda one: one.standing(self._size))  # stable: who came first wins a tie


class _Trainings:
    """What is known of short trainings, and the hands that carry out others."""

    def __init__(self, hands: Hands, known: Iterable[Record], note: Callable[[Record], None], ask: Ask) -> None:
        self._hands, self._note, self._ask = hands, note, ask
        self.at_once = hands.at_once
        self._known = {(one.architecture, one.steps): one for one in map(Trained.of, known)}

    def knows(self, architecture: Architecture, steps: int) -> bool:
        return (architecture, steps) in self._known

    def of(self, architectures: Sequence[Architecture], steps: int) -> list[Trained]:
        """How they do after so many steps, in their order."""
        missing = [one for one in architectures if not self.knows(one, steps)]
        for start in range(0, len(missing), self.at_once):
            tasks = [(one, steps) for one in missing[start : start + self.at_once]]
            for task, trained in zip(tasks, self._hands.do(tasks, self._ask), strict=True):
                self._known[task] = trained
                self._note(trained.told())
        return [self._known[one, steps] for one in architectures]


class _Climb:
    """From one architecture to the next better one.

    Where several can be trained at once, the next changes are trained ahead, as most do not help; where one does, those
    trained on top of what it has replaced are forgotten. So the way does not depend on how many there are at once.
    """

    def __init__(self, trainings: _Trainings, steps: int, size: float, tell: Callable[[str], None]) -> None:
        self._trainings, self._steps, self._size, self._tell = trainings, steps, size, tell
        self._seen: dict[Architecture, Trained] = {}

    @property
    def seen(self) -> list[Trained]:
        """What was looked at, in this order."""
        return list(self._seen.values())

    def look_at(self, one: Architecture, ahead: Sequence[Architecture] = ()) -> Architecture:
        """Have it trained if it was not yet, and as many of those that may come next as there are hands for."""
        asked_for = [one]
        if not self._trainings.knows(one, self._steps):
            self._tell(f"training finalist {len(self._seen) + 1} for {self._steps} steps")
            missing = [other for other in dict.fromkeys(ahead) if not self._trainings.knows(other, self._steps)]
            asked_for += missing[: self._trainings.at_once - 1]
        self._seen[one] = self._trainings.of(asked_for, self._steps)[0]
        return one

    def sweep(
        self,
        best: Architecture,
        changes: Sequence[Mapping[str, str]],
        allowed: Callable[[Architecture], bool],
    ) -> Architecture:
        """Try each change on top of those that helped."""
        for place in range(len(changes)):
            changed, *ahead = (Architecture({**best, **change}) for change in changes[place:])
            if changed == best or not allowed(changed):
                continue
            self.look_at(changed, [other for other in ahead if allowed(other)])
            if self._standing(changed) < self._standing(best):
                best = changed
        return best

    def _standing(self, one: Architecture) -> float:
        return self._seen[one].standing(self._size)


def _along(step: int, steps: int) -> float:
    """Where on its cosine the learning rate is: it rises over the first sixth of the steps, then falls to its end."""
    rise = steps // 6
    return 1 - (step + 1) / (rise + 1) if step < rise else (step - rise) / (steps - rise)


def _new_in(one: Architecture, other: Architecture) -> Mapping[str, str]:
    return {name: option for name, option in one.items() if other[name] != option}
