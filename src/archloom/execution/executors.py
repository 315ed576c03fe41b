"""Executors for independent jobs: serial, or a pool of worker processes.

A worker runs one job after another, so it imports torch only once. A worker that dies loses only its job, which is
retried. When the parent process ends, however it ends, its workers end too.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback
import types
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol, Self

import cloudpickle

from archloom.core.errors import ArchloomError, one_line
from archloom.core.events import (
    Advanced,
    Event,
    Failure,
    JobEnded,
    JobEvent,
    JobListener,
    JobLogged,
    JobProgressed,
    JobStarted,
    Listener,
    Started,
)
from archloom.core.progress_lines import LogLines
from archloom.core.stop_signals import STOP_SIGNALS
from archloom.execution.loop import Interrupted

START = "spawn"  # a forked torch would hold locks that no thread releases
ATTEMPTS = 2
SECONDS_BETWEEN_CHECKS = 0.25  # of whether to stop
SECONDS_TO_END = 5.0
SECONDS_BETWEEN_PROGRESS = 0.3
SCRIPT_FAILED = 1  # exit code of a process whose import of the calling script raised an error
SCRIPT = "__main__:"  # how the import path of a class in the calling script begins

Stop = Callable[[], bool]


class Job(Protocol):
    """A unit of work: a value that can be pickled and sent to another process or machine."""

    @property
    def name(self) -> str:
        """Return a name that no other job of the same call has."""

    @property
    def folder(self) -> Path | None:
        """Return the folder that keeps its results; None for a job that returns a small result instead."""

    def run(self, emit: JobListener, stop: Stop) -> Any:
        """Do the work. Raise `Interrupted` soon after `stop()` is true, with everything saved that is worth it."""


@dataclass(frozen=True)
class Resources:
    """What one job needs of a cluster."""

    cpus: int = 1
    gpus: int = 0
    memory_gb: float = 0.0  # 0: not stated


def resources_of(job: Job) -> Resources:
    """Return what a job states that it needs, else one CPU."""
    stated = getattr(job, "resources", None)
    return stated if isinstance(stated, Resources) else Resources()


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


class ProcessExecutor:
    """Runs jobs in worker processes, which ignore Ctrl-C: only the parent decides what to do about it.

    Each worker receives the `shared` values once; a job that holds one of them is sent without it. Workers import the
    calling script only for jobs that name a class of it, as in `__main__:MySpace`.
    """

    def __init__(self, workers: int, *, shared: Sequence[object] = ()) -> None:
        self.workers, self._shared = workers, tuple(shared)
        self._pool: dict[Connection, _Worker] = {}
        self._keeps_workers = self._imports_script = False

    def __enter__(self) -> Self:
        self._keeps_workers = True
        return self

    def __exit__(self, *exception: object) -> None:
        self._keeps_workers = False
        self._close()

    def run(
        self, jobs: Sequence[Job], *, emit: JobListener = lambda event: None, stop: Stop = lambda: False
    ) -> Mapping[str, Failure]:
        """Run all jobs as `Executor.run` describes."""
        waiting = JobQueue(jobs, emit)
        pickled = {job.name: dump(job, self._shared) for job in jobs}
        self._imports_script |= any(SCRIPT.encode() in data for data in pickled.values())
        is_complete = False
        try:
            self._run(waiting, pickled, min(self.workers, len(jobs)), stop)
            is_complete = True
        finally:
            if not is_complete or not self._keeps_workers:
                self._close()
        return waiting.failures

    def _run(self, waiting: JobQueue, pickled: Mapping[str, bytes], count: int, stop: Stop) -> None:
        for worker in self._pool.values():  # of an earlier call
            worker.start_next(waiting, pickled)
        for _ in range(count - len(self._pool)):
            self._start_worker()
        while any(worker.is_busy for worker in self._pool.values() if worker.is_ready or not waiting.is_stopping):
            for connection in wait(list(self._pool), timeout=SECONDS_BETWEEN_CHECKS):
                assert isinstance(connection, Connection)
                self._receive(self._pool[connection], waiting, pickled)
            if not waiting.is_stopping and stop():
                waiting.stop()
                for worker in self._pool.values():
                    worker.send("stop")

    def _start_worker(self) -> None:
        worker = _Worker(dump(self._shared), imports_script=self._imports_script)
        self._pool[worker.connection] = worker

    def _close(self) -> None:
        """End all workers; a busy one is killed, which only an error or a second Ctrl-C leads to."""
        for worker in self._pool.values():
            worker.end()
        self._pool.clear()

    def _receive(self, worker: _Worker, waiting: JobQueue, pickled: Mapping[str, bytes]) -> None:
        try:
            event: JobEvent | None = load(worker.connection.recv_bytes())
        except (EOFError, OSError):
            self._replace(worker, waiting)
            return
        if event is None:
            worker.is_ready = True
        elif isinstance(event, JobEnded):
            waiting.end(worker.release(), event)
        else:
            waiting.emit(event)
            return
        worker.start_next(waiting, pickled)

    def _replace(self, worker: _Worker, waiting: JobQueue) -> None:
        """Retry the job of a worker that died in a new worker."""
        code = worker.end()
        del self._pool[worker.connection]
        if not worker.is_ready and self._imports_script and code == SCRIPT_FAILED:
            raise ArchloomError(
                f"a worker process could not start (exit code {code}); a script whose classes are searched must call "
                "archloom below `if __name__ == '__main__':`, since workers import it"
            )
        job = worker.job
        if job is None and not worker.is_ready and not waiting.is_empty:
            job = waiting.start_next()  # the one it would have run: a machine that starts no process ends, too
        if job is not None:
            starting = "" if worker.is_ready else " while it started"
            waiting.end(job, JobEnded(job.name, failure=Failure(_describe_exit(code) + starting)))
        if not waiting.is_empty:
            self._start_worker()


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


def _describe_exit(code: int | None) -> str:
    """Return why a process ended, as far as its exit code shows it."""
    if code is None or code >= 0:
        return f"its process ended with exit code {code}"
    name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
    return f"its process was ended by {name}" + ("; was memory short?" if name == "SIGKILL" else "")


# --- values on their way between processes; a pipe of our own is the only source of what is unpickled


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickles classes and functions of the calling script by value, and shared values by their number."""

    def __init__(self, file: io.BytesIO, shared: Sequence[object]) -> None:
        super().__init__(file)
        self._numbers = {id(value): number for number, value in enumerate(shared)}

    def persistent_id(self, value: object) -> int | None:
        return self._numbers.get(id(value))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: Sequence[object]) -> None:
        super().__init__(file)
        self._values = shared

    def persistent_load(self, number: int) -> object:
        return self._values[number]


def dump(value: object, shared: Sequence[object] = ()) -> bytes:
    """Pickle a value; shared values in it become numbers."""
    file = io.BytesIO()
    _Pickler(file, shared).dump(value)
    return file.getvalue()


def load(data: bytes, shared: Sequence[object] = ()) -> Any:
    """Return the value that `dump` pickled."""
    return _Unpickler(io.BytesIO(data), shared).load()


# --- the parent's side of a worker


class _Worker:
    """One worker process as its parent sees it."""

    def __init__(self, shared: bytes, *, imports_script: bool) -> None:
        context = multiprocessing.get_context(START)
        self.connection, theirs = context.Pipe()
        self.job: Job | None = None
        self.is_ready = False
        self._process: BaseProcess = context.Process(  # type: ignore[attr-defined]  # every context has it
            target=_serve, args=(theirs, shared), daemon=True
        )
        with _block_signals(), contextlib.nullcontext() if imports_script else _hide_script():
            self._process.start()
        theirs.close()  # or the end of the worker would not close the pipe

    @property
    def is_busy(self) -> bool:
        return self.job is not None or not self.is_ready

    def start_next(self, waiting: JobQueue, pickled: Mapping[str, bytes]) -> None:
        if self.is_ready and not waiting.is_empty:
            self.job = waiting.start_next()
            self.send((self.job.name, pickled[self.job.name]))

    def release(self) -> Job:
        job, self.job = self.job, None
        assert job is not None, "only a busy worker ends a job"
        return job

    def send(self, message: object) -> None:
        with contextlib.suppress(OSError):  # the worker has died, and its closed connection is noticed next
            self.connection.send(message)

    def end(self) -> int | None:
        """Let an idle worker leave, kill a busy one; return the exit code."""
        if not self.is_busy:
            self.send(None)
            self._process.join(SECONDS_TO_END)
        if self._process.is_alive() and self._process.exitcode is None:
            self._process.join(0.1)  # it may be about to end by itself
            self._process.kill()
        self._process.join()
        self.connection.close()
        return self._process.exitcode


@contextlib.contextmanager
def _block_signals() -> Iterator[None]:
    """Block the signals that ask to stop: processes started within never receive them."""
    if not hasattr(signal, "pthread_sigmask"):  # not a POSIX system
        yield
        return
    resource_tracker.ensure_running()  # the first process would start it, which unblocks signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _hide_script() -> Iterator[None]:
    """Hide the calling script: processes started within do not run it again."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


# --- the worker's own side


def _serve(connection: Connection, shared_data: bytes) -> None:
    """Run jobs until there are no more."""
    shared = load(shared_data)
    jobs: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
    stop = threading.Event()
    threading.Thread(target=_receive_messages, args=(connection, jobs, stop), daemon=True).start()

    def emit(event: JobEvent | None) -> None:
        try:
            connection.send_bytes(dump(event))
        except OSError:
            os._exit(1)  # the parent is gone, and a traceback would appear in the terminal of another program

    emit(None)  # ready
    while (message := jobs.get()) is not None:
        name, data = message
        emit(attempt(name, partial(run_pickled, data, shared), emit, stop.is_set))


def run_pickled(data: bytes, shared: Sequence[object], emit: JobListener, stop: Stop) -> Any:
    """Load a job and run it: a plug-in that cannot be imported here fails only its job."""
    return load(data, shared).run(emit, stop)


def _receive_messages(connection: Connection, jobs: queue.SimpleQueue[Any], stop: threading.Event) -> None:
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            os._exit(1)  # the parent is gone; every file on disk is whole at any moment
        if message == "stop":
            stop.set()
        else:
            stop.clear()  # a request to stop concerned the jobs of an earlier call
            jobs.put(message)


# --- progress of a run as progress of its job


def progress_listener(job: str, emit: JobListener, clock: Callable[[], float] = time.perf_counter) -> Listener:
    """Return a listener to a loop that emits the progress of its job, a few times a second at most, and its log."""
    total, emitted, lines = 1, clock(), LogLines()

    def listen(event: Event) -> None:
        nonlocal total, emitted
        for line in lines(event):
            emit(JobLogged(job, line))
        if isinstance(event, Started):
            total = max(1, event.total)
        elif isinstance(event, Advanced) and clock() >= emitted + SECONDS_BETWEEN_PROGRESS:
            emitted = clock()
            emit(JobProgressed(job, event.position / total))

    return listen
