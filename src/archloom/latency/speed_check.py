"""A speed check of some ten seconds: matrix products, a small search step on every kind of inner loop, bf16.

What it finds out is what a user can set: the number of threads, the inner loops, the precision.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from archloom import fast as kernels
from archloom.latency.step_timing import Clock, Step, Workload, gigaflops, prepare, product, take_turns

SMALL_STEP = Workload(
    space="nb201", strategy="darts", channels=8, batch=64, space_settings={"cells_per_stage": 1}
)  # where threads and inner loops matter most, and still below a second
KINDS: tuple[kernels.Choice, ...] = ("auto", "torch", "plain")  # not compile, which takes minutes to begin
STEP_ROUNDS, STEP_BUDGET = 9, 7.0
PRODUCT_ROUNDS = 9
PROBE_SECONDS = 60.0  # for a product that takes milliseconds: one that takes longer hangs
PROBE = "from archloom.latency.speed_check import answer_probe; answer_probe({threads})"

Tell = Callable[[str], None]


@dataclass(frozen=True)
class StepTime:
    """The median time of one small search step."""

    device: str
    threads: int
    kernels: str
    seconds: float


@dataclass(frozen=True)
class ProductSpeed:
    """The best speed of a matrix product in single precision."""

    device: str
    threads: int
    gigaflops: float


@dataclass(frozen=True)
class LowPrecision:
    """How fast a product in bf16 is, as a multiple of one in fp32; or how the process ended that tried."""

    ratio: float | None = None
    failure: str = ""


@dataclass(frozen=True)
class Speed:
    """All that a speed check measures."""

    products: tuple[ProductSpeed, ...]
    steps: tuple[StepTime, ...]
    low_precision: LowPrecision

    def step(self, device: str, threads: int, choice: str) -> float | None:
        """Seconds of one step, if it was measured."""
        wanted = (device, threads, choice)
        return next((s.seconds for s in self.steps if (s.device, s.threads, s.kernels) == wanted), None)


def check_speed(
    *,
    cores: int,
    devices: Sequence[str] = (),
    workload: Workload = SMALL_STEP,
    clock: Clock = time.perf_counter,
    tell: Tell = lambda what: None,
) -> Speed:
    """Measure. Variants take turns; torch has as many threads afterwards as before."""
    threads = torch.get_num_threads()
    places = [("cpu", count) for count in sorted({1, threads, cores})] + [(device, threads) for device in devices]
    try:
        tell("matrix products")
        products = _products(places, clock)
        steps = _steps(places, workload, clock, tell)
    finally:
        torch.set_num_threads(threads)
    tell("bf16, in a process of its own")
    return Speed(products, steps, probe_low_precision(cores))


def _products(places: Sequence[tuple[str, int]], clock: Clock) -> tuple[ProductSpeed, ...]:
    steps = {_key(*place): _with_threads(place[1], product(device=place[0])) for place in places}
    times = take_turns(steps, rounds=PRODUCT_ROUNDS, clock=clock)
    return tuple(ProductSpeed(*place, gigaflops(min(times[_key(*place)]))) for place in places)  # a peak: the best


def _steps(places: Sequence[tuple[str, int]], workload: Workload, clock: Clock, tell: Tell) -> tuple[StepTime, ...]:
    # what a search uses by itself comes first: a machine may be too busy for the rest
    variants = [(device, threads, choice) for choice in KINDS for device, threads in places]
    steps = {
        _key(*variant): _with_threads(variant[1], prepare(workload, choice=variant[2], device=variant[0]))
        for variant in variants
    }
    times = take_turns(
        steps,
        rounds=STEP_ROUNDS,
        warm_up=1,
        budget=STEP_BUDGET,
        clock=clock,
        tell=lambda number: tell(f"search steps, round {number + 1}"),
    )
    return tuple(
        StepTime(*variant, statistics.median(times[_key(*variant)])) for variant in variants if _key(*variant) in times
    )


def _key(*parts: object) -> str:
    return " ".join(map(str, parts))


def _with_threads(threads: int, step: Step) -> Step:
    def run() -> object:
        torch.set_num_threads(threads)
        return step()

    return run


# --- bf16, which may kill the process that tries it: some virtual machines announce instructions that they lack


def probe_low_precision(threads: int, *, seconds: float = PROBE_SECONDS) -> LowPrecision:
    """Try a product in bf16 in a process of its own."""
    command = [sys.executable, "-c", PROBE.format(threads=threads)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return LowPrecision(failure=f"does not end within {seconds:.0f} s")
    if ended.returncode:
        return LowPrecision(failure=_failure(ended.returncode, ended.stderr))
    times = json.loads(ended.stdout)
    return LowPrecision(ratio=times["float32"] / times["bfloat16"])


def answer_probe(threads: int) -> None:
    """What the other process does: time both precisions in turns and print the best of each as JSON."""
    _leave_no_core_file()
    torch.set_num_threads(threads)
    steps = {"float32": product(torch.float32), "bfloat16": product(torch.bfloat16)}
    times = take_turns(steps, rounds=PRODUCT_ROUNDS)
    print(json.dumps({name: min(seconds) for name, seconds in times.items()}))


def _leave_no_core_file() -> None:
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _failure(code: int, stderr: str) -> str:
    """How a process ended: by which signal, or with which last words."""
    if code < 0:
        return f"crashes ({signal.Signals(-code).name})"
    words = stderr.strip().splitlines()
    return f"fails ({words[-1] if words else f'exit code {code}'})"
