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
ClockName = Literal["wall", "cpu"]
CLOCKS: dict[ClockName, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}

PLAN_END = 0.2  # of the budget; after it only the cheapest race is timed, and the memory is not measured
SUPERNET_END = 0.45  # of the budget: when the shared weights must have been trained, planning included
LEAST_SUPERNET = 0.3  # of the time that is left when the supernet begins
POSTERIOR_END = 0.6  # of the budget: when the posterior phase must be over, where it is asked for
SHARPNESS_END = 0.6  # when the eigenvalue of an epoch must be measured; it is left out where it would take longer
RACE_END = 0.94  # when the race must be over; what is left is for the random baseline and the report
SLACK = 1.05  # a phase may be this much slower than planned before it is shortened
RECENT = 30  # steps whose mean duration predicts the next ones
END_SECONDS = 1.0  # of a core, for what follows the last phase: the last evaluation, the result, a page of text
PICTURE_SECONDS = 2.5  # of a core, for the pictures of the page
MOST_FOR_PICTURES = 0.1  # of the budget is kept for them; a busy machine leaves them out
LEAST_SHARE = 0.02  # of a core that a process is taken to get at least
SEEN_SECONDS = 1.0  # before the share of a core is believed
LATELY_SECONDS = 4.0  # a machine that became busy shows in the last seconds, not in the mean since the start


@dataclass
class Budget:
    """So many seconds from the start of a run on; `spent` were spent before, such as before it was resumed."""

    seconds: float
    clock: Clock = time.perf_counter
    spent: float = 0.0
    cpu_clock: Clock | None = None  # where the share of a core that this process gets is watched
    started: float = field(init=False)
    core_share: float = field(init=False, default=1.0)

    def __post_init__(self) -> None:
        self.started = self.clock()
        self._seen: deque[tuple[float, float]] = deque()  # both clocks, when watching began and lately
        self.forget_load()

    @classmethod
    def begin(cls, seconds: float, name: ClockName = "wall", *, spent: float = 0.0) -> Budget:
        """Return a budget by the clock of a name; on a wall clock other processes make a run slower."""
        return cls(seconds, CLOCKS[name], spent, cpu_clock=time.process_time if name == "wall" else None)

    @classmethod
    def begin_with_process(cls, seconds: float, name: ClockName = "wall", *, age: float) -> Budget:
        """Return a budget that began with this process, so many seconds ago; its start shows how busy the machine is.

        The age is 0 where Python code calls: its process did other work before.
        """
        budget = cls.begin(seconds, name, spent=age)
        if budget.cpu_clock is not None and age > SEEN_SECONDS:
            budget._set_share(budget.cpu_clock() / age)
        return budget

    @property
    def elapsed(self) -> float:
        """Return the seconds that the run has taken."""
        return self.spent + self.clock() - self.started

    def left_until(self, share: float) -> float:
        """Return the seconds until this share of the budget is spent; the end of a run always keeps its time."""
        pictures = min(PICTURE_SECONDS / self.core_share, MOST_FOR_PICTURES * self.seconds)
        end = self.seconds - END_SECONDS / self.core_share - pictures
        return min(share * self.seconds, end) - self.elapsed

    def is_past(self, share: float) -> bool:
        """Return whether more than this share of the budget is spent."""
        return self.left_until(share) < 0

    def has_time_for_pictures(self) -> bool:
        """Return whether the pictures of the report can be drawn in time."""
        self.watch_load()
        return self.elapsed + PICTURE_SECONDS / self.core_share <= self.seconds

    def end_of_supernet(self) -> float:
        """Return the share of the budget at which the supernet must be trained: later where the start took long."""
        begun = self.elapsed / self.seconds
        return max(SUPERNET_END, begun + LEAST_SUPERNET * (1 - begun))

    def forget_load(self) -> None:
        """Watch the share of a core from now on: until now the process may have waited for others."""
        self._seen.clear()
        if self.cpu_clock is not None:
            self._seen.append((self.clock(), self.cpu_clock()))

    def watch_load(self) -> None:
        """Measure the share of a core that this process gets; call it while it computes, and not while it waits.

        It is the smaller one of the share since watching began and of that lately.
        """
        if self.cpu_clock is None:
            return
        now, used = self.clock(), self.cpu_clock()
        while len(self._seen) > 2 and now - self._seen[2][0] >= LATELY_SECONDS:
            del self._seen[1]
        watched = [self._seen[place] for place in range(min(2, len(self._seen)))]
        shares = [(used - before) / (now - start) for start, before in watched if now - start > SEEN_SECONDS]
        if shares:
            self._set_share(min(shares))
        self._seen.append((now, used))

    def _set_share(self, share: float) -> None:
        self.core_share = min(1.0, max(LEAST_SHARE, share))


class StepPace:
    """Watches the steps of a phase and says how many of them fit into its time."""

    def __init__(self, budget: Budget, *, end: float) -> None:
        self._budget, self._end = budget, end
        self._times: deque[float] = deque(maxlen=RECENT + 1)  # when steps ended

    def steps_that_fit(self, wanted: int) -> int:
        """Count a step; return how many more can be taken in time, at most `wanted`."""
        self._budget.watch_load()
        self._times.append(self._budget.elapsed)
        each, left = self._seconds_per_step(), max(0.0, self._budget.left_until(self._end))
        if each * wanted <= SLACK * left:
            return wanted
        return min(wanted, int(left / each)) if each > 0 else wanted

    def has_time_for(self, steps: int, *, until: float) -> bool:
        """Return whether so many steps fit before a share of the budget is spent."""
        return self._seconds_per_step() * steps <= self._budget.left_until(until)

    def _seconds_per_step(self) -> float:
        """Return the mean of the last steps; 0 after the first one, which follows work of another kind."""
        return (self._times[-1] - self._times[0]) / (len(self._times) - 1) if len(self._times) > 1 else 0.0


def time_steps(step: Callable[[], object], clock: Clock, *, before: int, count: int, most: float) -> float:
    """Return the mean seconds of a step, by `count` of them after some that only warm up.

    A slow machine takes fewer of either, at least one: no more than `most` seconds should pass for each.
    """
    start = clock()
    for _ in range(before):
        step()
        if clock() - start > most:
            break
    start, done = clock(), 0
    while done == 0 or (done < count and clock() - start < most):
        step()
        done += 1
    return max(1e-6, (clock() - start) / done)
