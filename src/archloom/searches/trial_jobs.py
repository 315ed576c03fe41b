"""Score several trials at the same time: a driver asks the strategy and reports to it, an executor scores.

A group of trials is asked for before any of them is reported, and reported in the order of their numbers. So the result
depends on the size of the group, which is a setting, and not on where or how fast the trials are scored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from archloom.core.errors import ArchloomError
from archloom.core.events import JobEnded, JobEvent, JobListener
from archloom.execution.executors import Executor, Resources, Stop
from archloom.execution.loop import Interrupted
from archloom.execution.machine import Machine
from archloom.searches.studies import FinishedTrial, Score, Scored
from archloom.strategies.base import Trial


@dataclass(frozen=True)
class ScoreJob:
    """One trial; its scores are the result of the job."""

    score: Score
    trial: Trial
    machine: Machine | None = None  # to prepare where the job runs; None: it is prepared already
    folder: None = None

    @property
    def name(self) -> str:
        """Return a name that no other trial has."""
        return f"trial {self.trial.number}"

    @property
    def resources(self) -> Resources:
        """Return what the trial needs of a cluster."""
        return Resources() if self.machine is None else self.machine.resources

    def run(self, emit: JobListener, stop: Stop) -> FinishedTrial:
        """Score the architecture."""
        if self.machine is not None:
            self.machine.prepare()
        start, scores = time.perf_counter(), list[Scored]()
        for scored in self.score(self.trial.architecture):
            scores.append(scored)
            if scored.epochs < self.score.epochs and stop():
                raise Interrupted
        return FinishedTrial(self.trial, tuple(scores), pruned=False, seconds=time.perf_counter() - start)


@dataclass(frozen=True)
class ParallelScore:
    """Scores groups of trials on an executor."""

    score: Score
    executor: Executor
    at_once: int
    machine: Machine | None = None

    def run(self, trials: Sequence[Trial], stop: Callable[[], bool]) -> list[FinishedTrial]:
        """Return the trials that were scored, in their order; fewer than asked for after a request to stop.

        Raises:
            ArchloomError: If a trial failed twice.
        """
        found: dict[str, FinishedTrial] = {}

        def listen(event: JobEvent) -> None:
            if isinstance(event, JobEnded) and event.result is not None:
                found[event.job] = event.result

        jobs = [ScoreJob(self.score, trial, self.machine) for trial in trials]
        failures = self.executor.run(jobs, emit=listen, stop=stop)
        for name, failure in failures.items():
            raise ArchloomError(f"{name} failed twice: {failure.message}; resume the run when it is mended") from (
                RuntimeError(failure.details) if failure.details else None
            )
        return [found[job.name] for job in jobs if job.name in found]
