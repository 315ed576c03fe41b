"""What runs independent jobs, and the simplest that does: one job after another in this process."""

from __future__ import annotations

import traceback
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

from archloom.core.errors import ArchloomError, one_line
from archloom.core.events import Failure, JobEnded, JobListener, JobStarted
from archloom.execution.loop import Interrupted

ATTEMPTS = 2

Stop = Callable[[], bool]


class Job(Protocol):
    """A unit of work: a value that can be pickled and sent to another process or machine."""

    @property
    def name(self) -> str:
        """Return a name that no other job of the same call has."""

    @property
    def folder(self) -> Path | None:
        """Return the folder that keeps its results; None for a job that returns a small result instead."""

    @property
    def resources(self) -> Resources:
        """Return what the job needs of a cluster."""

    def run(self, emit: JobListener, stop: Stop) -> Any:
        """Do the work. Raise `Interrupted` soon after `stop()` is true, with everything saved that is worth it."""


@dataclass(frozen=True)
class Resources:
    """What one job needs of a cluster."""

    cpus: int = 1
    gpus: int = 0
    memory_gb: float = 0.0  # 0: not stated


class Executor(Protocol):
    """Runs independent jobs. As a context manager it keeps its workers from one `run` to the next."""

    @property
    def workers(self) -> int:
        """Return how many jobs run at the same time."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...

    def run(self, jobs: Sequence[Job], *, emit: JobListener = ..., stop: Stop = ...) -> Mapping[str, Failure]:
        """Run all jobs, started in their order; return the failures by job name.

        A failed job is retried once. When `stop()` is true, running jobs are asked to stop and no other starts.
        """


class SerialExecutor:
    """Runs one job after another in this process."""

    workers = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def run(
        self, jobs: Sequence[Job], *, emit: JobListener = lambda event: None, stop: Stop = lambda: False
    ) -> Mapping[str, Failure]:
        """Run all jobs as `Executor.run` describes."""
        waiting = JobQueue(jobs, emit)
        while not waiting.is_empty and not stop():
            job = waiting.start_next()
            waiting.end(job, attempt(job.name, job.run, emit, stop))
        return waiting.failures


class JobQueue:
    """Jobs that wait, how often each was tried, and why some failed."""

    def __init__(self, jobs: Sequence[Job], emit: JobListener) -> None:
        self._jobs, self.emit = deque(jobs), emit
        self._attempts: Counter[str] = Counter()
        self.is_stopping = False
        self.failures: dict[str, Failure] = {}

    @property
    def is_empty(self) -> bool:
        """Return whether no job waits."""
        return not self._jobs

    def start_next(self) -> Job:
        """Return the next job, which begins now."""
        job = self._jobs.popleft()
        self._attempts[job.name] += 1
        self.emit(JobStarted(job.name))
        return job

    def put_back(self, job: Job) -> None:
        """Run a job again whose machine was lost, which is no failure of the job."""
        self._attempts[job.name] -= 1
        self.emit(JobEnded(job.name, stopped=self.is_stopping, retrying=not self.is_stopping))
        if not self.is_stopping:
            self._jobs.appendleft(job)

    def end(self, job: Job, ended: JobEnded) -> None:
        """Note how a job ended; a failed one is retried once."""
        retrying = ended.failure is not None and self._attempts[job.name] < ATTEMPTS and not self.is_stopping
        if retrying:
            self._jobs.append(job)
        elif ended.failure is not None:
            self.failures[job.name] = ended.failure
        self.emit(replace(ended, retrying=retrying))

    def stop(self) -> None:
        """Forget the jobs that wait."""
        self.is_stopping = True
        self._jobs.clear()


def attempt(name: str, run: Callable[[JobListener, Stop], Any], emit: JobListener, stop: Stop) -> JobEnded:
    """Run a job and return how it ended; no error leaves it."""
    try:
        return JobEnded(name, result=run(emit, stop))
    except Interrupted:
        return JobEnded(name, stopped=True)
    except ArchloomError as error:
        return JobEnded(name, failure=Failure(one_line(error)))
    except Exception as error:  # whatever it is, other jobs continue
        message = f"{type(error).__name__}: {one_line(error)}"
        return JobEnded(name, failure=Failure(message, traceback.format_exc()))
