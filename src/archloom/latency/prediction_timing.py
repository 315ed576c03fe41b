"""Time predictions of several forms of a model in the same rounds, so that a busy moment hits all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from archloom.latency.step_timing import Clock, Step, time_rounds

REPEATS, WARM_UP = 50, 5


@dataclass(frozen=True)
class Latency:
    """Milliseconds of one call, over many."""

    median: float
    tenth: float  # percentile: one call in ten is faster
    ninetieth: float
    repeats: int


def measure_latencies(
    calls: Mapping[str, Step],
    *,
    repeats: int = REPEATS,
    warm_up: int = WARM_UP,
    clock: Clock = time.perf_counter,
) -> dict[str, Latency]:
    """Return the latency of each call, timed in the same rounds."""
    times = time_rounds(calls, rounds=repeats, warm_up=warm_up, clock=clock)
    return {name: _summarize(taken) for name, taken in times.items()}


def _summarize(seconds: list[float]) -> Latency:
    tenth, ninetieth = np.percentile(seconds, [10, 90])
    return Latency(1000 * statistics.median(seconds), 1000 * float(tenth), 1000 * float(ninetieth), len(seconds))


@contextmanager
def use_torch_threads(count: int) -> Iterator[None]:
    """Use this many torch threads, and restore the number afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
