"""The time of a search: how much there is, how much is left, and when a phase has to end.

A budget covers everything from reading the data to the verdict. Each phase gets a share. A phase that turns out slower
than planned is shortened, so that the whole ends in time on a machine that became slow.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Clock = Callable[[], float]
CLOCKS: dict[Literal["wall", "cpu"], Clock] = {"wall": time.perf_counter, "cpu": time.process_time}

SUPERNET_END = 0.45  # of the budget: when the shared weights must have been trained, planning included
RACE_END = 0.94  # when the race must be over; what is left is for the random baseline and the report
SLACK = 1.05  # a phase may be this much slower than planned before it is shortened
RECENT = 30  # steps whose mean duration predicts the next ones


@dataclass
class Budget:
    """So many seconds from the start of a search on; `spent` were spent before it was resumed."""

    seconds: float
    clock: Clock = time.perf_counter
    spent: float = 0.0
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    @property
    def elapsed(self) -> float:
        """Return the seconds that the search has taken."""
        return self.spent + self.clock() - self.started

    def left_until(self, share: float) -> float:
        """Return the seconds until this share of the budget is spent."""
        return share * self.seconds - self.elapsed


class StepPace:
    """Watches the steps of a phase and says how many of them fit into its time."""

    def __init__(self, budget: Budget, *, end: float) -> None:
        self._budget, self._end = budget, end
        self._times: deque[float] = deque([budget.elapsed], maxlen=RECENT + 1)

    def steps_that_fit(self, wanted: int) -> int:
        """Count a step; return how many more can be taken in time, at most `wanted`."""
        self._times.append(self._budget.elapsed)
        each = (self._times[-1] - self._times[0]) / (len(self._times) - 1)
        left = max(0.0, self._budget.left_until(self._end))
        if each * wanted <= SLACK * left:
            return wanted
        return min(wanted, int(left / each)) if each > 0 else wanted
