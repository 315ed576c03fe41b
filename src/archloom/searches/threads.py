"""Torch threads that never hurt: several are used only while they are faster than one.

Threads of one operation wait for each other. On a busy machine one of them waits for a core, too, and all others with
it: two threads can then be a hundred times slower than one.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import torch

from archloom.searches.budget import Clock, time_steps

WORTH = 1.1  # times faster must several threads be
WARM_UP, TIMED_STEPS = 1, 3  # for each number of threads
SLOWER = 2.0  # times slower than before makes a run try one thread
WINDOW = 8  # steps that are compared


def choose_threads(step: Callable[[], object], clock: Clock, *, most: float) -> int:
    """Return the number of torch threads with which a step is fastest, one or as many as now, and use it.

    Each of the two is timed for a few steps and about twice `most` seconds.
    """
    usual = torch.get_num_threads()
    if usual == 1:
        return 1
    seconds = {}
    for threads in (1, usual):
        torch.set_num_threads(threads)
        seconds[threads] = time_steps(step, clock, before=WARM_UP, count=TIMED_STEPS, most=most)
    chosen = usual if WORTH * seconds[usual] < seconds[1] else 1
    torch.set_num_threads(chosen)
    return chosen


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
