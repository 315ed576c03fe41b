"""Many tasks on a few processes: each process takes one task after the other, so that torch is imported only once.

A process that dies takes nothing with it but its task, which is tried again. When the process that hands out tasks is
gone, however it ended, the others end too.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from archloom.core.errors import ArchloomError, one_line

START = "spawn"  # a forked torch would have locks that nobody lets go
ATTEMPTS = 2
SECONDS_BETWEEN_LOOKS = 0.25  # at whether somebody asked to stop
SECONDS_TO_END = 5.0


class Named(Protocol):
    """A task: it has a name, and can be sent to another process."""

    @property
    def name(self) -> str: ...


class StoppedTask(Exception):  # noqa: N818 - nothing went wrong
    """A task that was asked to stop has saved what it had and stopped."""


Perform = Callable[[Any, Callable[[float], None], Callable[[], bool]], None]
"""Carries out one task; gets the task, whom to tell the share that is done, and a question: whether to stop."""


@dataclass(frozen=True)
class Working:
    """A task has begun, or this share of it is done."""

    task: Any
    share: float


@dataclass(frozen=True)
class Ended:
    """A task is over: done, stopped when asked to, or failed with a line on why; a failed one may be tried again."""

    task: Any
    failure: str = ""
    details: str = ""  # of a failure that nobody expected
    stopped: bool = False
    again: bool = False


Listener = Callable[[Working | Ended], None]


def carry_out(
    tasks: Sequence[Named],
    perform: Perform,
    *,
    jobs: int,
    listen: Listener = lambda event: None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, str]:
    """Carry out all tasks in their order on `jobs` processes; why some failed, by name.

    `perform` must be importable. When `stop` says so, tasks under way are asked to stop, and none begins.
    """
    pool = _Pool(deque(tasks), perform, listen)
    try:
        pool.work(min(jobs, len(tasks)), stop)
    finally:
        pool.close()
    return pool.failures


class _Pool:
    """The side that hands out tasks."""

    def __init__(self, pending: deque[Named], perform: Perform, listen: Listener) -> None:
        self._pending, self._perform, self._listen = pending, perform, listen
        self._workers: dict[Connection, _Worker] = {}
        self._attempts: dict[str, int] = {}
        self._stopping = False
        self.failures: dict[str, str] = {}

    def work(self, jobs: int, stop: Callable[[], bool]) -> None:
        for _ in range(jobs):
            self._start()
        while any(worker.task is not None or not worker.ready for worker in self._workers.values()):
            for connection in wait(list(self._workers), timeout=SECONDS_BETWEEN_LOOKS):
                assert isinstance(connection, Connection)
                self._hear(self._workers[connection])
            if not self._stopping and stop():
                self._stopping = True
                self._pending.clear()
                for worker in self._workers.values():
                    worker.send("stop")

    def close(self) -> None:
        """End all processes: at once where they still work, which only an error or a second Ctrl-C can bring about."""
        for worker in self._workers.values():
            worker.end()

    def _start(self) -> None:
        worker = _Worker(self._perform)
        self._workers[worker.connection] = worker

    def _hear(self, worker: _Worker) -> None:
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            self._bury(worker)
            return
        if message == "ready":
            worker.ready = True
            self._hand_out(worker)
        elif isinstance(message, float):
            self._listen(Working(worker.task, message))
        else:
            self._end(worker, Ended(worker.task, **message))
            self._hand_out(worker)

    def _hand_out(self, worker: _Worker) -> None:
        worker.task = self._pending.popleft() if self._pending else None
        if worker.task is None:
            return
        self._attempts[worker.task.name] = self._attempts.get(worker.task.name, 0) + 1
        self._listen(Working(worker.task, 0.0))
        worker.send(worker.task)  # where the process is dead, its closed connection is heard next

    def _end(self, worker: _Worker, ended: Ended) -> None:
        again = bool(ended.failure) and self._attempts[ended.task.name] < ATTEMPTS and not self._stopping
        if again:
            self._pending.append(ended.task)
        elif ended.failure:
            self.failures[ended.task.name] = ended.failure
        worker.task = None
        self._listen(Ended(**{**vars(ended), "again": again}))

    def _bury(self, worker: _Worker) -> None:
        """A process died: its task is tried again by a new one."""
        code = worker.end()
        del self._workers[worker.connection]
        if not worker.ready:
            raise ArchloomError(
                f"a worker process could not start (exit code {code}); a Python script that compares must do so below "
                "`if __name__ == '__main__':`, since workers import it"
            )
        if worker.task is not None:
            self._end(worker, Ended(worker.task, failure=_death(code)))
        if self._pending and not self._stopping:
            self._start()


def _death(code: int | None) -> str:
    """Why a process ended, as far as its exit code tells."""
    if code is None or code >= 0:
        return f"its process ended with exit code {code}"
    name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
    return f"its process was ended by {name}" + ("; was memory short?" if name == "SIGKILL" else "")


class _Worker:
    """One process as seen from the other side."""

    def __init__(self, perform: Perform) -> None:
        context = multiprocessing.get_context(START)
        self.connection, theirs = context.Pipe()
        self.task: Any = None
        self.ready = False
        self._process: BaseProcess = context.Process(  # type: ignore[attr-defined]  # every context has it
            target=_serve, args=(theirs, perform), daemon=True
        )
        with _signals_held():  # Ctrl-C goes to all processes of a terminal: only the first one may act on it
            self._process.start()
        theirs.close()  # so that its end is noticed

    def send(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # it has died, which the closed connection tells
            self.connection.send(message)

    def end(self) -> int | None:
        """Let an idle process leave, kill one that works; its exit code."""
        if self.task is None and self.ready:
            self.send(None)
            self._process.join(SECONDS_TO_END)
        if self._process.is_alive() and self._process.exitcode is None:
            self._process.join(0.1)  # it may be about to end by itself
            self._process.kill()
        self._process.join()
        self.connection.close()
        return self._process.exitcode


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Within, signals that ask to stop wait; processes begun here never get them."""
    if not hasattr(signal, "pthread_sigmask"):  # not a POSIX system
        yield
        return
    resource_tracker.ensure_running()  # the first process would start it, and that lets signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# --- the side that works


def _serve(connection: Connection, perform: Perform) -> None:
    """Carry out tasks until there are no more."""
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    stop = threading.Event()
    threading.Thread(target=_receive, args=(connection, tasks, stop), daemon=True).start()
    connection.send("ready")
    while (task := tasks.get()) is not None:
        connection.send(_attempt(task, perform, connection.send, stop.is_set))


def _receive(connection: Connection, tasks: queue.SimpleQueue[Any], stop: threading.Event) -> None:
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            os._exit(1)  # whoever hands out tasks is gone; what is on disk is whole at any moment
        if message == "stop":
            stop.set()
        else:
            tasks.put(message)


def _attempt(
    task: Any, perform: Perform, tell: Callable[[float], None], stop: Callable[[], bool]
) -> dict[str, str | bool]:
    try:
        perform(task, tell, stop)
    except StoppedTask:
        return {"stopped": True}
    except ArchloomError as error:
        return {"failure": one_line(error)}
    except Exception as error:  # whatever it is, the others go on
        return {"failure": f"{type(error).__name__}: {one_line(error)}", "details": traceback.format_exc()}
    return {}
