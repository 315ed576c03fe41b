"""Who carries out tasks that do not depend on each other: this process one after the other, or several side by side."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol, Self

from archloom.core.errors import ArchloomError

SECONDS_BETWEEN_LOOKS = 0.25  # at whether somebody asked to stop

Ask = Callable[[], None]
"""Raises where somebody asked to stop."""

Work = Callable[..., Any]
"""Carries out a task, given as positional arguments; asks its last argument, an `Ask`, as often as it can stop."""


class Hands(Protocol):
    """They take up their work on entering and are let go on leaving."""

    at_once: int

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...

    def do(self, tasks: Sequence[tuple[Any, ...]], ask: Ask) -> list[Any]:
        """What came of the tasks, in their order."""
        ...


class InTurn:
    """This process, one task after the other."""

    at_once = 1

    def __init__(self, work: Work) -> None:
        self._work = work

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def do(self, tasks: Sequence[tuple[Any, ...]], ask: Ask) -> list[Any]:
        return [self._work(*task, ask) for task in tasks]


class SideBySide:
    """Several processes, which get the work itself once and then its tasks; `prepare` is called first in each."""

    def __init__(self, work: Work, at_once: int, *, prepare: Callable[[], object]) -> None:
        self._work, self.at_once, self._prepare = work, at_once, prepare
        self._processes: Any = None

    def __enter__(self) -> Self:
        from loky import (
            ProcessPoolExecutor,  # its processes do not run the script again from which the search was begun
        )

        self._processes = ProcessPoolExecutor(
            max_workers=self.at_once, initializer=_take_up, initargs=(self._work, self._prepare)
        )
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._processes is not None
        self._processes.shutdown(kill_workers=True)  # nothing of theirs is on disk
        self._processes = None

    def do(self, tasks: Sequence[tuple[Any, ...]], ask: Ask) -> list[Any]:
        assert self._processes is not None, "outside of `with`"
        futures = [self._processes.submit(_carry_out, task) for task in tasks]
        while wait(futures, timeout=SECONDS_BETWEEN_LOOKS).not_done:
            ask()
        try:
            return [future.result() for future in futures]
        except BrokenProcessPool as error:
            raise ArchloomError(
                f"one of {self.at_once} processes ended before its work did; was memory short? The run can be resumed, "
                "with a smaller machine.processes in its config.toml"
            ) from error


# --- the side that works

_taken_up: list[Work] = []


def _take_up(work: Work, prepare: Callable[[], object]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes of a terminal: the first one acts on it
    prepare()
    _taken_up[:] = [work]


def _carry_out(task: tuple[Any, ...]) -> Any:
    return _taken_up[0](*task, _go_on)


def _go_on() -> None:
    """Nobody asks here: whoever handed out the tasks ends this process instead."""
