"""The finalist race: train a few architectures briefly and by themselves, at full depth, and keep the best.

A supernet is shallow and narrow, and its weights serve every architecture at once, so it cannot show what depth needs.
The strategy proposes changes to its architecture; a short training of each at full depth shows whether one helps. A
change that helps is kept, and the next is tried on top of it. The best are then trained again, for longer, and the best
of these once more. A short training shows how fast a network learns and not how far it gets, so its size counts, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch.nn import functional as F

from archloom.core.errors import ArchloomError
from archloom.core.events import JobEnded, JobEvent, JobListener
from archloom.core.json_object import JsonObject, to_json_object
from archloom.data.loader import Batch, Loader
from archloom.execution.executors import Executor, Stop
from archloom.execution.loop import Interrupted
from archloom.execution.machine import Machine
from archloom.searches.records import FinalistRecord
from archloom.spaces import Architecture
from archloom.supernet import SharedWeights

ROUNDS = ((6, 3), (2, 9))  # the top 6 are trained again, 3 times as long; then the top 2, 9 times as long

Begin = Callable[[Architecture], SharedWeights]
"""A network of one architecture with fresh weights, and its optimizer."""


class ShortTraining:
    """Trains architectures on the same batches and evaluates them on the same images."""

    def __init__(self, begin: Begin, *, train: Loader, evaluation: Loader, shrink: int = 1) -> None:
        self._begin, self._train, self._evaluation, self._shrink = begin, train, evaluation, shrink

    def __call__(self, architecture: Architecture, steps: int, stop: Stop) -> FinalistRecord:
        weights = self._begin(architecture)
        for step in range(steps):
            if stop():
                raise Interrupted
            weights.set_progress(_schedule(step, steps))
            weights.fit(self._resize(self._train.batch(*divmod(step, self._train.steps))), {})
        losses, rights, images = 0.0, 0.0, 0
        with torch.no_grad():  # by the batch's own statistics: running ones lag behind a short training
            for batch in map(self._resize, self._evaluation.epoch(0)):
                outcome = weights.step_result(batch, {})
                losses += float(outcome.loss) * len(batch)
                rights += float(outcome.score) * len(batch)
                images += len(batch)
        loss = losses / images if math.isfinite(losses) else None
        return FinalistRecord("", architecture, steps, loss, rights / images, weights.parameter_count)

    def _resize(self, batch: Batch) -> Batch:
        """Shrink the images by the mean over squares."""
        return batch if self._shrink == 1 else replace(batch, images=F.avg_pool2d(batch.images, self._shrink))


@dataclass(frozen=True)
class TrainingJob:
    """One short training; its score is the result of the job."""

    number: int
    training: ShortTraining
    architecture: Architecture
    steps: int
    machine: Machine | None = None  # to prepare where the job runs; None: it is prepared already
    folder: None = None

    @property
    def name(self) -> str:
        """Return a name that no other training of the race has."""
        return f"short training {self.number}"

    def run(self, emit: JobListener, stop: Stop) -> FinalistRecord:
        """Train the architecture briefly and return its score."""
        if self.machine is not None:
            self.machine.prepare()
        return self.training(self.architecture, self.steps, stop)


class FinalistRace:
    """Decides between architectures by short trainings, which an executor runs."""

    def __init__(
        self,
        training: ShortTraining,
        executor: Executor,
        *,
        steps: int,
        sweeps: int = 2,
        size: float = 0.0,
        machine: Machine | None = None,
    ) -> None:
        self._training, self._executor, self._machine = training, executor, machine
        self._steps, self._sweeps, self._size = steps, sweeps, size

    def run(
        self,
        architectures: Sequence[Architecture],
        *,
        known: Iterable[JsonObject] = (),
        allowed: Callable[[Architecture], bool] = lambda architecture: True,
        describe: Callable[[str], None] = lambda what: None,
        note: Callable[[JsonObject], None] = lambda record: None,
        stop: Stop = lambda: False,
    ) -> tuple[Architecture, list[FinalistRecord]]:
        """Return the winner and the records of all trained architectures, the best first.

        The race starts at the first architecture; where the others differ from it are the changes to try. What `note`
        received before an interruption is passed as `known`, and is not trained again.
        """
        first, *others = architectures
        changes = [_differences(one, first) for one in others]
        changes += [change for change in (_differences(first, one) for one in others) if change not in changes]
        with self._executor as executor:
            trainings = _Trainings(self._training, executor, self._machine, known, note, stop)
            climb = _Climb(trainings, self._steps, self._size, describe)
            best = climb.train(first, [one for one in others if allowed(one)])
            for _ in range(self._sweeps):
                before, best = best, climb.sweep(best, changes, allowed)
                if best == before:
                    break
            ranked = self._rank(climb.scores)
            for count, longer in ROUNDS:
                steps, chosen = longer * self._steps, ranked[:count]
                describe(f"training the best {len(chosen)} again for {steps} steps")
                ranked[:count] = self._rank(trainings.scores_of([one.architecture for one in chosen], steps))
        return ranked[0].architecture, ranked

    def _rank(self, scores: Iterable[FinalistRecord]) -> list[FinalistRecord]:
        return sorted(scores, key=lambda one: one.rank_by(self._size))  # stable: the first wins a tie


class _Trainings:
    """The scores of short trainings: those known, and those of new jobs."""

    def __init__(
        self,
        training: ShortTraining,
        executor: Executor,
        machine: Machine | None,
        known: Iterable[JsonObject],
        note: Callable[[JsonObject], None],
        stop: Stop,
    ) -> None:
        self._training, self._executor, self._machine = training, executor, machine
        self._note, self._stop = note, stop
        self.workers = executor.workers
        self._known = {(one.architecture, one.steps): one for one in map(FinalistRecord.from_json, known)}

    def has(self, architecture: Architecture, steps: int) -> bool:
        return (architecture, steps) in self._known

    def scores_of(self, architectures: Sequence[Architecture], steps: int) -> list[FinalistRecord]:
        """Return the scores after so many steps, in the order of the architectures."""
        missing = [one for one in architectures if not self.has(one, steps)]
        for start in range(0, len(missing), self.workers):
            self._train(missing[start : start + self.workers], steps)
        return [self._known[one, steps] for one in architectures]

    def _train(self, architectures: Sequence[Architecture], steps: int) -> None:
        jobs = [
            TrainingJob(len(self._known) + place, self._training, one, steps, self._machine)
            for place, one in enumerate(architectures, start=1)
        ]
        scores: dict[str, FinalistRecord] = {}

        def listen(event: JobEvent) -> None:
            if isinstance(event, JobEnded) and event.result is not None:
                scores[event.job] = event.result

        failures = self._executor.run(jobs, emit=listen, stop=self._stop)
        for job in jobs:
            if job.name in scores:
                self._known[job.architecture, steps] = scores[job.name]
                self._note(to_json_object(scores[job.name]))
        for failure in failures.values():
            raise ArchloomError(
                f"a short training of the finalist race failed twice: {failure.message}; resume the run, with a "
                "smaller machine.worker_processes in its config.toml if memory was short"
            ) from (RuntimeError(failure.details) if failure.details else None)
        if len(scores) < len(jobs):
            raise Interrupted


class _Climb:
    """Steps from one architecture to the next better one.

    Where several can be trained at once, the next changes are trained ahead, as most do not help; where one does, those
    trained on top of what it replaced are ignored. So the result does not depend on the number of workers.
    """

    def __init__(self, trainings: _Trainings, steps: int, size: float, describe: Callable[[str], None]) -> None:
        self._trainings, self._steps, self._size, self._describe = trainings, steps, size, describe
        self._scores: dict[Architecture, FinalistRecord] = {}

    @property
    def scores(self) -> list[FinalistRecord]:
        """Return the scores of the architectures that were compared, in this order."""
        return list(self._scores.values())

    def train(self, one: Architecture, ahead: Sequence[Architecture] = ()) -> Architecture:
        """Train an architecture if it was not trained yet, and as many of those ahead as there are idle workers."""
        wanted = [one]
        if not self._trainings.has(one, self._steps):
            self._describe(f"training finalist {len(self._scores) + 1} for {self._steps} steps")
            missing = [other for other in dict.fromkeys(ahead) if not self._trainings.has(other, self._steps)]
            wanted += missing[: self._trainings.workers - 1]
        self._scores[one] = self._trainings.scores_of(wanted, self._steps)[0]
        return one

    def sweep(
        self,
        best: Architecture,
        changes: Sequence[Mapping[str, str]],
        allowed: Callable[[Architecture], bool],
    ) -> Architecture:
        """Try each change on top of those that helped; return the best architecture."""
        for place in range(len(changes)):
            changed, *ahead = (Architecture({**best, **change}) for change in changes[place:])
            if changed == best or not allowed(changed):
                continue
            self.train(changed, [other for other in ahead if allowed(other)])
            if self._rank(changed) < self._rank(best):
                best = changed
        return best

    def _rank(self, one: Architecture) -> float:
        return self._scores[one].rank_by(self._size)


def _schedule(step: int, steps: int) -> float:
    """Return the position on the cosine of the learning rate, which rises over the first sixth of the steps."""
    rise = steps // 6
    return 1 - (step + 1) / (rise + 1) if step < rise else (step - rise) / (steps - rise)


def _differences(one: Architecture, other: Architecture) -> Mapping[str, str]:
    return {name: option for name, option in one.items() if other[name] != option}
