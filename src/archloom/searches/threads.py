"""Torch threads that never hurt: several are used only while they are faster than one.

Threads of one operation wait for each other. On a busy machine one of them waits for a core, too, and all others with
it: two threads can then be a hundred times slower than one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch

WORTH = 1.1  # times faster must several threads be
PROBE_SIDE, PROBE_SECONDS = 192, 0.25  # of the matrix products that are timed: about half a millisecond each
SLOWER = 2.0  # times slower than before makes a run try one thread
WINDOW = 8  # steps that are compared

Clock = Callable[[], float]


def choose_threads(clock: Clock = time.perf_counter) -> int:
    """Return the number of torch threads that is faster now, one or as many as usual, and use it.

    Small products show it within half a second: they wait for the slowest thread as often as the operations of a cell.
    """
    usual = torch.get_num_threads()
    if usual == 1:
        return 1
    matrix = torch.rand(PROBE_SIDE, PROBE_SIDE)
    rates = {}
    for threads in (1, usual):
        torch.set_num_threads(threads)
        rates[threads] = _rate(lambda: torch.relu(matrix @ matrix), clock)
    chosen = usual if rates[usual] > WORTH * rates[1] else 1
    torch.set_num_threads(chosen)
    return chosen


def _rate(operation: Callable[[], object], clock: Clock) -> float:
    """Return how often an operation runs in a second."""
    operation()  # the first one starts the threads
    start, done = clock(), 0
    while done == 0 or clock() - start < PROBE_SECONDS:
        operation()
        done += 1
    return done / max(clock() - start, 1e-9)


class ThreadWatch:
    """Watches the steps of a run, and goes down to one torch thread where several have become slower."""

    def __init__(self) -> None:
        self._usual = torch.get_num_threads()
        self._times: list[float] = []
        self._best = float("inf")  # median seconds of a step with several threads, in the best window
        self._before: float | None = None  # the same, in the window before one thread was tried

    def count(self, seconds: float) -> None:
        """Count a step that took so many seconds."""
        if self._usual == 1:
            return
        self._times.append(seconds)
        if len(self._times) < WINDOW:
            return
        middle, self._times = median(self._times), []
        if self._before is not None:
            self._decide(middle)
        elif middle > SLOWER * self._best:
            self._before = middle
            torch.set_num_threads(1)
        self._best = min(self._best, middle)

    def _decide(self, middle: float) -> None:
        """Keep one thread if it is faster than several were just before; else return to them, and watch on."""
        assert self._before is not None
        if middle < self._before:
            self._usual = 1  # for good: one thread does not depend on what else runs
        else:
            torch.set_num_threads(self._usual)
            self._best, self._before = self._before, None
