"""A pool of worker processes on this machine.

A worker runs one job after another, so it imports torch only once. A worker that dies loses only its job, which is
retried. When the parent process ends, however it ends, its workers end too.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import sys
import threading
import types
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Self

from archloom.core.errors import ArchloomError
from archloom.core.events import Failure, JobEnded, JobEvent, JobListener
from archloom.core.stop_signals import STOP_SIGNALS
from archloom.execution.executors import Job, JobQueue, Stop, attempt
from archloom.execution.pickling import dump, load, run_pickled

START = "spawn"  # a forked torch would hold locks that no thread releases
SECONDS_BETWEEN_CHECKS = 0.25  # of whether to stop
SECONDS_TO_END = 5.0
SCRIPT_FAILED = 1  # exit code of a process whose import of the calling script raised an error
SCRIPT = "__main__:"  # how the import path of a class in the calling script begins


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


def _describe_exit(code: int | None) -> str:
    """Return why a process ended, as far as its exit code shows it."""
    if code is None or code >= 0:
        return f"its process ended with exit code {code}"
    name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
    return f"its process was ended by {name}" + ("; was memory short?" if name == "SIGKILL" else "")


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
