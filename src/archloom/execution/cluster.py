"""The loop of a driver that runs jobs on a cluster, whatever engine starts them.

An engine submits a call, says which calls have ended, and tells a failure from a machine that was lost.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, Self, TypeVar

from archloom.core.events import Failure, JobEnded, JobListener, JobProgressed
from archloom.execution.exchange import SECONDS_BETWEEN_LOOKS, Exchange, RemoteCall
from archloom.execution.executors import Job, JobQueue, Resources, Stop
from archloom.execution.pickling import dump

HandleT = TypeVar("HandleT")


@dataclass(frozen=True)
class Ended(Generic[HandleT]):
    """A call that ended; None where the machine was lost that it ran on."""

    handle: HandleT
    end: JobEnded | None


class ClusterExecutor(ABC, Generic[HandleT]):
    """Runs jobs on a cluster; a machine that is lost or preempted does not count as a failure of its job."""

    def __init__(
        self, place: Path, *, shared: Sequence[object] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._place, self._shared, self._clock = place, tuple(shared), clock
        self._depth = 0

    @property
    @abstractmethod
    def workers(self) -> int:
        """Return how many jobs run at the same time, as far as it is known."""

    @abstractmethod
    def _connect(self) -> None:
        """Join the cluster."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Leave the cluster as it is."""

    @abstractmethod
    def _share(self, data: bytes) -> object:
        """Send what all jobs share once; return what stands for it in a call."""

    @abstractmethod
    def _submit(self, call: RemoteCall, shared: object, resources: Resources) -> HandleT:
        """Start a call."""

    @abstractmethod
    def _wait(self, handles: Sequence[HandleT]) -> Iterator[Ended[HandleT]]:
        """Wait for a moment; yield the calls that have ended."""

    def __enter__(self) -> Self:
        if self._depth == 0:
            self._connect()
        self._depth += 1
        return self

    def __exit__(self, *exception: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._disconnect()

    def run(
        self, jobs: Sequence[Job], *, emit: JobListener = lambda event: None, stop: Stop = lambda: False
    ) -> Mapping[str, Failure]:
        """Run all jobs as `Executor.run` describes."""
        queue = JobQueue(jobs, emit)
        if not jobs:
            return queue.failures
        numbers = {job.name: number for number, job in enumerate(jobs)}
        with self:
            exchange = Exchange.create(self._place)
            try:
                self._run(queue, numbers, exchange, stop)
            except BaseException:
                exchange.request_stop()  # jobs may outlive the driver, so the folder stays
                raise
            exchange.remove()
        return queue.failures

    def _run(self, queue: JobQueue, numbers: Mapping[str, int], exchange: Exchange, stop: Stop) -> None:
        shared = self._share(dump(self._shared))
        running: dict[HandleT, Job] = {}
        shares: dict[str, float] = {}
        looked, capacity = self._clock(), self.workers
        while running or not queue.is_empty:
            while not queue.is_empty and len(running) < capacity:
                job = queue.start_next()
                call = RemoteCall(job.name, numbers[job.name], dump(job, self._shared), exchange)
                running[self._submit(call, shared, job.resources)] = job
            for ended in self._wait(list(running)):
                job = running.pop(ended.handle)
                if ended.end is None:
                    queue.put_back(job)
                else:
                    queue.end(job, replace(ended.end, job=job.name))
            if not queue.is_stopping and stop():
                queue.stop()
                exchange.request_stop()
            if self._clock() >= looked + SECONDS_BETWEEN_LOOKS:
                looked, capacity = self._clock(), self.workers  # machines come and go
                exchange.refresh()
                found = {job.name: exchange.read_share(numbers[job.name]) for job in running.values()}
                for name, share in found.items():
                    if share is not None and share != shares.get(name):
                        shares[name] = share
                        queue.emit(JobProgressed(name, share))
