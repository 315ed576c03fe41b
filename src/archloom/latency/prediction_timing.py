"""How long a prediction takes: several forms of a model timed in turns, so that a busy moment hits all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from archloom.latency.step_timing import Clock, Step, take_turns

REPEATS, WARM_UP = 50, 5


@dataclass(frozen=True)
class Latency:
    """Milliseconds of one call, over many."""

    median: float
    tenth: float  # percentile: one call in ten is quicker
    ninetieth: float
    repeats: int


def latencies(
    calls: Mapping[str, Step],
    *,
    repeats: int = REPEATS,
    warm_up: int = WARM_UP,
    clock: Clock = time.perf_counter,
) -> dict[str, Latency]:
    """Each call timed as often, turn by turn."""
    times = take_turns(calls, rounds=repeats, warm_up=warm_up, clock=clock)
    return {name: _latency(taken) for name, taken in times.items()}


def _latency(seconds: list[float]) -> Latency:
    tenth, ninetieth = np.percentile(seconds, [10, 90])
    return Latency(1000 * statistics.median(seconds), 1000 * float(tenth), 1000 * float(ninetieth), len(seconds))


@contextmanager
def threads_of_torch(count: int) -> Iterator[None]:
    """As many threads as asked for, and afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
