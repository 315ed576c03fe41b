"""The finalist race: train candidates briefly and by themselves, and keep the best.

A supernet is shallow and narrow, and its weights serve every architecture at once, so it cannot show what depth needs.
Here every contestant is a network of its own, trained as it will be trained later, but briefly. The first ones are what
the search derived, reference architectures and random ones; a surrogate proposes the others (`race_proposals.py`). The
best are trained again for longer. The best reference reaches the last round, whatever its place, since the verdict
compares with it. A short training shows how fast a network learns and not how far it gets, so its size counts, too.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeVar

import torch
from torch.nn import functional as F

from archloom.core.errors import ArchloomError
from archloom.core.events import JobEnded, JobEvent, JobListener
from archloom.core.json_object import JsonObject, to_json_object
from archloom.data.loader import Batch, Batches
from archloom.execution.executors import Executor, Resources, Stop
from archloom.execution.loop import Clock, Interrupted
from archloom.execution.machine import Machine
from archloom.searches.race_proposals import DERIVED, LARGEST, PROPOSAL, RANDOM, SAMPLE, Entrant
from archloom.searches.race_settings import Round
from archloom.searches.records import FinalistRecord
from archloom.searches.studies import Scored
from archloom.spaces import Architecture
from archloom.supernet import SharedWeights

NOT_REFERENCES = (DERIVED, RANDOM, SAMPLE, PROPOSAL)
FEWEST_SURVIVORS = 2  # with less time a round is left out
FIRST_OF_ALL = 4  # contestants that are trained before time is kept for later rounds: references are among them
LATER_SLACK, MOST_FOR_LATER = 1.1, 0.6  # of the time of later rounds, as what wins may be larger; of the whole race
FEW_PASSES = 4  # over the images: until then nothing is learned by heart, and augmentation only slows learning
REPEAT_EPOCHS = 1_000_000  # apart: another seed sees other batches

Item = TypeVar("Item")
Begin = Callable[[Architecture, int], SharedWeights]
"""A network of one architecture with fresh weights of a seed number, and its optimizer."""

Propose = Callable[[Sequence[FinalistRecord]], list[Entrant]]
"""The next contestants, by the records of the first round so far; none ends the round."""


class ShortTraining:
    """Trains architectures on the same batches and evaluates them on the same held-out examples.

    A training of few passes over the examples sees them as they are (`plain`), a longer one augmented (`train`).
    """

    def __init__(
        self,
        begin: Begin,
        *,
        train: Batches,
        plain: Batches | None = None,
        evaluation: Batches,
        shrink: int = 1,
        clock: Clock = time.perf_counter,
    ) -> None:
        self._begin, self._train, self._plain = begin, train, plain or train
        self._evaluation, self._shrink = evaluation, shrink
        self._clock = clock  # that of the budget

    def __call__(self, entrant: Entrant, steps: int, repeat: int, stop: Stop) -> FinalistRecord:
        start = self._clock()
        weights = self._begin(entrant.architecture, repeat)
        batches = self._plain if steps <= FEW_PASSES * self._train.steps else self._train
        for step in range(steps):
            if stop():
                raise Interrupted
            weights.set_progress(_schedule(step, steps))
            self._fit(weights, batches, step, repeat)
        loss, examples = self._evaluate(weights, stop)
        packed = examples.dtype == torch.bool
        return FinalistRecord(
            "",
            entrant.architecture,
            steps,
            loss,
            float(examples.double().mean()) if packed else 0.0 if loss is None else math.exp(-loss),
            weights.parameter_count,
            origin=entrant.origin,
            repeat=repeat,
            correct=pack_bits(examples) if packed else "",
            examples=() if packed else tuple(examples.tolist()),
            seconds=self._clock() - start,
        )

    def begin(self, entrant: Entrant) -> Callable[[], object]:
        """Return what takes one step of a training that nobody will use: to time it."""
        weights, steps = self._begin(entrant.architecture, 0), count()
        return lambda: self._fit(weights, self._train, next(steps), 0)

    def _fit(self, weights: SharedWeights, batches: Batches, step: int, repeat: int) -> None:
        epoch, place = divmod(step, batches.steps)
        weights.fit(self._resize(batches.batch(epoch + repeat * REPEAT_EPOCHS, place)), {})

    def _evaluate(self, weights: SharedWeights, stop: Stop) -> tuple[float | None, torch.Tensor]:
        """Return the mean loss (None where it is not finite), and a figure for every held-out example."""
        losses, images, correct = 0.0, 0, []
        for batch in map(self._resize, self._evaluation.epoch(0)):
            if stop():
                raise Interrupted
            # by the batch's own statistics: running ones lag behind a short training
            loss, right = weights.evaluate_examples(batch, {})
            losses += float(loss) * len(batch)
            images += len(batch)
            correct.append(right)
        return losses / images if math.isfinite(losses) else None, torch.cat(correct)

    def _resize(self, batch: Batch) -> Batch:
        """Shrink the images by the mean over squares."""
        return batch if self._shrink == 1 else replace(batch, inputs=F.avg_pool2d(batch.inputs, self._shrink))


class ShortScore:
    """Scores a trial as the first round of a race ranks it, in percent.

    The score is the mean probability of the right answer, exp(-loss), times the bonus for size: parameters / `largest`
    to the power of `size`. Without the bonus an identity wins: it learns fastest. For a strategy that stops weak trials
    early there are scores on the way, each after a shorter training of its own.
    """

    epochs = 9  # parts of a full training

    def __init__(
        self, training: ShortTraining, steps: int, *, size: float = 0.0, largest: int = 1, every_rung: bool = False
    ) -> None:
        self._training, self._steps, self._size, self._largest = training, steps, size, largest
        self._parts = (1, 3, self.epochs) if every_rung else (self.epochs,)

    def __call__(self, architecture: Architecture) -> Iterator[Scored]:
        for part in self._parts:
            steps = max(1, self._steps * part // self.epochs)
            record = self._training(Entrant(architecture, PROPOSAL), steps, 0, lambda: False)
            yield Scored(part, 100 * math.exp(-record.rank_by(self._size)) / self._largest**self._size)


@dataclass(frozen=True)
class TrainingJob:
    """One short training; its record is the result of the job."""

    training: ShortTraining
    entrant: Entrant
    steps: int
    repeat: int
    number: int
    machine: Machine | None = None  # to prepare where the job runs; None: it is prepared already
    folder: None = None

    @property
    def name(self) -> str:
        """Return a name that no other training of the race has."""
        return f"short training {self.number}"

    @property
    def resources(self) -> Resources:
        """Return what the training needs of a cluster."""
        return Resources() if self.machine is None else self.machine.resources

    def run(self, emit: JobListener, stop: Stop) -> FinalistRecord:
        """Train the architecture briefly and return its record."""
        if self.machine is not None:
            self.machine.prepare()
        return self.training(self.entrant, self.steps, self.repeat, stop)


@dataclass(frozen=True)
class RaceOutcome:
    """The winner, and every training: those of the last round first, each round the best first."""

    winner: Architecture
    records: Sequence[FinalistRecord]
    cut_short: bool = False  # the time was over before the last round


class TimeIsUpError(Exception):
    """The time of the race is over; what is trained by now decides."""


@dataclass
class FinalistRace:
    """Decides between architectures by short trainings, which an executor runs."""

    training: ShortTraining
    executor: Executor
    steps: int
    contestants: int
    size: float = 0.0
    rounds: Sequence[Round] = ()
    machine: Machine | None = None
    known: list[FinalistRecord] = field(default_factory=list)  # trained before an interruption

    def run(
        self,
        entrants: Sequence[Entrant],
        propose: Propose = lambda records: [],
        *,
        describe: Callable[[str], None] = lambda what: None,
        note: Callable[[JsonObject], None] = lambda record: None,
        stop: Stop = lambda: False,
        time_left: Callable[[], float] | None = None,
    ) -> RaceOutcome:
        """Return the winner and the records of all trainings.

        Args:
            entrants: the first contestants.
            propose: returns the next contestants.
            describe: receives what the race does now, in words.
            note: receives every record as JSON; after an interruption they are passed as `known`.
            stop: asked at every step; once true, the race stops and can be resumed.
            time_left: seconds until the race must be over; then the trainings that are done decide.

        Raises:
            Interrupted: `stop` was true.
        """
        with self.executor as executor:
            trainings = _Trainings(self, executor, note, stop, time_left or (lambda: math.inf))
            rounds = [self._first_round(trainings, entrants, propose, describe)]
            trainings.reserve = 0.0
            for one in self.rounds:
                try:
                    rounds.append(self._later_round(trainings, rounds, one, describe))
                except TimeIsUpError:
                    break
        return self._outcome(rounds, cut_short=len(rounds) <= len(self.rounds))

    def _first_round(
        self, trainings: _Trainings, entrants: Sequence[Entrant], propose: Propose, describe: Callable[[str], None]
    ) -> list[FinalistRecord]:
        most = MOST_FOR_LATER * trainings.left()
        records: list[FinalistRecord] = []
        waiting = list(entrants)[: max(1, self.contestants)]
        while waiting:
            describe(f"finalist race: {len(records)} of {self.contestants} trained for {self.steps} steps")
            try:
                for chunk in _chunks(waiting, trainings.workers):
                    trainings.reserve = min(most, self._time_of_later_rounds(records, trainings.workers))
                    records += trainings.run(chunk, self.steps, range(1))
            except TimeIsUpError:
                if not records:
                    raise
                break
            waiting = propose(records)[: max(0, self.contestants - len(records))]
        return records

    def _time_of_later_rounds(self, records: Sequence[FinalistRecord], workers: int) -> float:
        """Return the seconds that later rounds would take by what the best took; 0 as long as few are trained."""
        if len(records) < FIRST_OF_ALL:
            return 0.0
        each = statistics.fmean(one.seconds for one in self.rank(records)[:FIRST_OF_ALL])
        groups = (math.ceil(one.survivors * one.repeats / workers) * one.longer for one in self.rounds)
        return LATER_SLACK * each * sum(groups)

    def _later_round(
        self,
        trainings: _Trainings,
        rounds: Sequence[Sequence[FinalistRecord]],
        one: Round,
        describe: Callable[[str], None],
    ) -> list[FinalistRecord]:
        ranked, steps = self.rank(rounds[-1]), one.longer * self.steps
        repeats, survivors = one.repeats, min(one.survivors, trainings.count_fitting(steps * one.repeats))
        while survivors < FEWEST_SURVIVORS and repeats > 1:  # one seed of two networks rather than none
            repeats -= 1
            survivors = min(one.survivors, trainings.count_fitting(steps * repeats))
        if min(survivors, len(ranked)) < FEWEST_SURVIVORS:  # no time, or nothing to decide
            raise TimeIsUpError
        kept, references = ranked[:survivors], [record for record in ranked if is_reference(record)]
        if references and references[0] not in kept:
            kept = [*kept[:-1], references[0]]
        describe(f"finalist race: training the best {len(kept)} again for {steps} steps")
        return trainings.run([Entrant(r.architecture, r.origin) for r in kept], steps, range(repeats))

    def _outcome(self, rounds: Sequence[Sequence[FinalistRecord]], *, cut_short: bool) -> RaceOutcome:
        seen: dict[Architecture, None] = {}
        for number, records in reversed(list(enumerate(rounds))):
            trained = {record.architecture for record in records}
            later = rounds[min(1, number) : number + 1]  # without the first round, which picked lucky ones
            evidence = (one for some in later for one in some)
            seen |= {one.architecture: None for one in self.rank(evidence) if one.architecture in trained}
        order = {architecture: place for place, architecture in enumerate(seen)}
        flat = [record for records in reversed(rounds) for record in records]
        ordered = sorted(flat, key=lambda record: (-record.steps, order[record.architecture], record.repeat))
        return RaceOutcome(next(iter(seen)), ordered, cut_short)

    def rank(self, records: Iterable[FinalistRecord]) -> list[FinalistRecord]:
        """Return one record per architecture, the best first by the mean over its records; the first wins a tie."""
        by_architecture: dict[Architecture, list[FinalistRecord]] = {}
        for record in records:
            by_architecture.setdefault(record.architecture, []).append(record)
        means = {
            one: statistics.fmean(record.rank_by(self.size) for record in own) for one, own in by_architecture.items()
        }
        return [by_architecture[one][0] for one in sorted(means, key=lambda one: means[one])]


class _Trainings:
    """The records of short trainings: those known, and those of new jobs."""

    def __init__(
        self,
        race: FinalistRace,
        executor: Executor,
        note: Callable[[JsonObject], None],
        stop: Stop,
        left: Callable[[], float],
    ) -> None:
        self._race, self._executor, self._note = race, executor, note
        self._stop, self.left = stop, left
        self.reserve = 0.0  # seconds that later rounds need
        self.workers = executor.workers
        self._known = {(one.architecture, one.steps, one.repeat): one for one in race.known}

    def _is_late(self) -> bool:
        return self.left() <= self.reserve

    def count_fitting(self, steps: int) -> int:
        """Return how many trainings of so many steps fit into the time that is left."""
        done = [one for one in self._known.values() if one.seconds > 0]
        left = self.left()
        if not done or not math.isfinite(left):
            return len(self._known)
        each = sum(one.seconds for one in done) / sum(one.steps for one in done)
        return max(0, int(self.workers * left / (each * steps)))

    def run(self, entrants: Sequence[Entrant], steps: int, repeats: range) -> list[FinalistRecord]:
        """Return the records after so many steps, in the order of entrants, then of repeats."""
        wanted = [(one, repeat) for repeat in repeats for one in entrants]
        missing = [(one, repeat) for one, repeat in wanted if (one.architecture, steps, repeat) not in self._known]
        for chunk in _chunks(missing, self.workers):
            self._train(chunk, steps)
        return [self._known[one.architecture, steps, repeat] for one in entrants for repeat in repeats]

    def _train(self, wanted: Sequence[tuple[Entrant, int]], steps: int) -> None:
        if self._is_late():
            raise TimeIsUpError
        race, first = self._race, len(self._known) + 1
        jobs = [
            TrainingJob(race.training, one, steps, repeat, number, race.machine)
            for number, (one, repeat) in enumerate(wanted, start=first)
        ]
        found: dict[str, FinalistRecord] = {}

        def listen(event: JobEvent) -> None:
            if isinstance(event, JobEnded) and event.result is not None:
                found[event.job] = event.result

        failures = self._executor.run(jobs, emit=listen, stop=lambda: self._stop() or self._is_late())
        for job in jobs:
            if job.name in found:
                self._known[job.entrant.architecture, steps, job.repeat] = found[job.name]
                self._note(to_json_object(found[job.name]))
        for failure in failures.values():
            raise ArchloomError(
                f"a short training of the finalist race failed twice: {failure.message}; resume the run, with a "
                "smaller machine.worker_processes in its config.toml if memory was short"
            ) from (RuntimeError(failure.details) if failure.details else None)
        if len(found) < len(jobs):
            raise Interrupted if self._stop() else TimeIsUpError


def is_reference(record: FinalistRecord) -> bool:
    """Return whether a contestant is one that a user could have taken without a search."""
    return record.origin == LARGEST or record.origin not in ("", *NOT_REFERENCES)


def _chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _schedule(step: int, steps: int) -> float:
    """Return the position on the cosine of the learning rate, which rises over the first sixth of the steps."""
    rise = steps // 6
    return 1 - (step + 1) / (rise + 1) if step < rise else (step - rise) / (steps - rise)


def pack_bits(flags: torch.Tensor) -> str:
    """Return truth values as hexadecimal digits, four of them in each."""
    bits = "".join("1" if flag else "0" for flag in flags.tolist())
    return f"{len(bits)}:{int(bits or '0', 2):x}"


def unpack_bits(text: str) -> list[bool]:
    """Return the truth values that `pack_bits` wrote."""
    count, _, digits = text.partition(":")
    return [digit == "1" for digit in f"{int(digits or '0', 16):0{int(count or 0)}b}"][: int(count or 0)]
