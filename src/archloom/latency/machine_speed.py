"""Measure the speed of this machine in about ten seconds: matrix products, small search steps on each kernel, bf16.

It measures what a user can set: the number of threads, the kernels, the precision.
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
from archloom.latency.step_timing import Clock, Step, Workload, gigaflops, prepare_product, prepare_step, time_rounds

SMALL_STEP = Workload(
    space="nb201", strategy="darts", channels=8, batch=64, space_settings={"cells_per_stage": 1}
)  # threads and kernels matter most at this size, and a step takes less than a second
KERNELS: tuple[kernels.KernelChoice, ...] = ("auto", "torch", "plain")  # not compile, which takes minutes to start
STEP_ROUNDS, STEP_BUDGET = 9, 7.0
PRODUCT_ROUNDS = 9
PROBE_SECONDS = 60.0  # for a product of milliseconds: a process that needs longer hangs
PROBE = "from archloom.latency.machine_speed import answer_probe; answer_probe({threads})"

Announce = Callable[[str], None]


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
    """The speed of a product in bf16 as a multiple of fp32, or how the process that tried it ended."""

    ratio: float | None = None
    failure: str = ""


@dataclass(frozen=True)
class Speed:
    """What a speed check measures."""

    products: tuple[ProductSpeed, ...]
    steps: tuple[StepTime, ...]
    low_precision: LowPrecision

    def step(self, device: str, threads: int, choice: str) -> float | None:
        """Return the seconds of one step, or None if it was not measured."""
        wanted = (device, threads, choice)
        return next((s.seconds for s in self.steps if (s.device, s.threads, s.kernels) == wanted), None)


def check_speed(
    *,
    cores: int,
    devices: Sequence[str] = (),
    workload: Workload = SMALL_STEP,
    clock: Clock = time.perf_counter,
    announce: Announce = lambda what: None,
) -> Speed:
    """Measure all variants in the same rounds, and restore the number of torch threads afterwards."""
    threads = torch.get_num_threads()
    places = [("cpu", count) for count in sorted({1, threads, cores})] + [(device, threads) for device in devices]
    try:
        announce("matrix products")
        products = _time_products(places, clock)
        steps = _time_steps(places, workload, clock, announce)
    finally:
        torch.set_num_threads(threads)
    announce("bf16, in another process")
    return Speed(products, steps, probe_low_precision(cores))


def _time_products(places: Sequence[tuple[str, int]], clock: Clock) -> tuple[ProductSpeed, ...]:
    steps = {_key(*place): _with_threads(place[1], prepare_product(device=place[0])) for place in places}
    times = time_rounds(steps, rounds=PRODUCT_ROUNDS, clock=clock)
    return tuple(ProductSpeed(*place, gigaflops(min(times[_key(*place)]))) for place in places)  # the peak


def _time_steps(
    places: Sequence[tuple[str, int]], workload: Workload, clock: Clock, announce: Announce
) -> tuple[StepTime, ...]:
    # the default kernels come first: a busy machine may not get to the others within the budget
    variants = [(device, threads, choice) for choice in KERNELS for device, threads in places]
    steps = {
        _key(*variant): _with_threads(variant[1], prepare_step(workload, choice=variant[2], device=variant[0]))
        for variant in variants
    }
    times = time_rounds(
        steps,
        rounds=STEP_ROUNDS,
        warm_up=1,
        budget=STEP_BUDGET,
        clock=clock,
        on_round=lambda number: announce(f"search steps, round {number + 1}"),
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


# --- bf16 may kill its process: some virtual machines announce instructions that they do not have


def probe_low_precision(threads: int, *, seconds: float = PROBE_SECONDS) -> LowPrecision:
    """Try a product in bf16 in another process."""
    command = [sys.executable, "-c", PROBE.format(threads=threads)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return LowPrecision(failure=f"does not end within {seconds:.0f} s")
    if ended.returncode:
        return LowPrecision(failure=_describe_failure(ended.returncode, ended.stderr))
    times = json.loads(ended.stdout)
    return LowPrecision(ratio=times["float32"] / times["bfloat16"])


def answer_probe(threads: int) -> None:
    """Time both precisions and print the best time of each as JSON: what the other process runs."""
    _leave_no_core_file()
    torch.set_num_threads(threads)
    steps = {"float32": prepare_product(torch.float32), "bfloat16": prepare_product(torch.bfloat16)}
    times = time_rounds(steps, rounds=PRODUCT_ROUNDS)
    print(json.dumps({name: min(seconds) for name, seconds in times.items()}))


def _leave_no_core_file() -> None:
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _describe_failure(code: int, stderr: str) -> str:
    """Return how a process ended: by which signal, or with which last line."""
    if code < 0:
        return f"crashes ({signal.Signals(-code).name})"
    lines = stderr.strip().splitlines()
    return f"fails ({lines[-1] if lines else f'exit code {code}'})"
