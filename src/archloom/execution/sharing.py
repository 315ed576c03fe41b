"""Share jobs among processes of any number of machines that see one folder, without a server.

The process that takes the lease of a job's folder runs the job. The others leave it alone, and look again at the end:
if the process that ran it died, its lease becomes stale, and another process resumes the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from archloom.core.events import Failure, JobEnded, JobEvent, JobListener, JobStarted
from archloom.core.leases import LeaseHeldError, is_held
from archloom.execution.executors import Executor, Job, Resources, Stop
from archloom.execution.jobs import FolderJob
from archloom.execution.run_folder import FolderTakenError

PAUSE = 2.0  # seconds between two looks at jobs that other processes run
ELSEWHERE: Literal["elsewhere"] = "elsewhere"  # the result of a job that another process runs or has run


@dataclass(frozen=True)
class SharedJob:
    """A job that this process runs unless another one does."""

    job: FolderJob

    @property
    def name(self) -> str:
        """Return the name of the job."""
        return self.job.name

    @property
    def folder(self) -> Path:
        """Return the folder of the job."""
        return self.job.folder

    @property
    def resources(self) -> Resources:
        """Return what the job needs of a cluster."""
        return self.job.resources

    def run(self, emit: JobListener, stop: Stop) -> Any:
        """Run the job if it is neither finished nor in progress."""
        if self.job.state == "finished" or is_held(self.folder):
            return ELSEWHERE
        try:
            return self.job.run(emit, stop)
        except (LeaseHeldError, FolderTakenError):  # another process was quicker
            return ELSEWHERE


class SharingExecutor:
    """Runs jobs on another executor, together with all processes that do the same with the same folders."""

    def __init__(self, executor: Executor, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._executor, self._sleep = executor, sleep
        self.workers = executor.workers

    def __enter__(self) -> Self:
        self._executor.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._executor.__exit__(*exception)

    def run(
        self, jobs: Sequence[Job], *, emit: JobListener = lambda event: None, stop: Stop = lambda: False
    ) -> Mapping[str, Failure]:
        """Run jobs until all are finished, here or elsewhere; return the failures of this process."""
        left = [SharedJob(_expect_folder(job)) for job in jobs]
        failures: dict[str, Failure] = {}
        with self._executor:
            while left and not stop():
                listener = _Listener(emit)
                failures |= self._executor.run(left, emit=listener, stop=stop)
                finished = {one.name for one in left if one.job.state == "finished"}
                for name in finished - listener.ended:
                    emit(JobEnded(name))  # another process ran it
                left = [one for one in left if one.name not in finished and one.name not in failures]
                if left and not listener.ended and not stop():
                    self._sleep(PAUSE)
        return failures


class _Listener:
    """Passes on the events of jobs that run here."""

    def __init__(self, emit: JobListener) -> None:
        self._emit = emit
        self._started: dict[str, JobStarted] = {}  # whether they run here is not known yet
        self.ended: set[str] = set()

    def __call__(self, event: JobEvent) -> None:
        if isinstance(event, JobStarted):
            self._started[event.job] = event
            return
        started = self._started.pop(event.job, None)
        if isinstance(event, JobEnded) and event.result == ELSEWHERE:
            return
        if started is not None:
            self._emit(started)
        if isinstance(event, JobEnded):
            self.ended.add(event.job)
        self._emit(event)


def _expect_folder(job: Job) -> FolderJob:
    assert isinstance(job, FolderJob), "only what is in folders can be shared"
    return job
