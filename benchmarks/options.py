"""What a step costs as the options of a layer grow, on one layout of mobile layers: 6, 42 and 252 of them.

    python benchmarks/options.py [--rounds 20] [--batch 64] [--threads 1]

6 are three kernels and two expansions; 42 the same at seven widths; 252 six expansions, with and without
squeeze-and-excite, at seven widths. All three take the same paths, which all three spaces contain, so that what
differs is what the other options cost. The steps take turns in one process; memory is that of a step in a process of
its own, beyond the network, its gradients and its momentum, which are printed beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from archloom.data.loader import Batch
from archloom.execution.machine import keep_memory
from archloom.families import build_network
from archloom.latency.step_timing import time_rounds
from archloom.searches.short_training import seeded
from archloom.spaces import SPACES, Architecture, SearchSpace
from archloom.spaces.mobile import OFF
from archloom.supernet import EveryOption, Gate, Gates, SharedWeights, path_gates
from one_step import resident_mb

MULTIPLIERS = {"width_multipliers": (0.5, 0.625, 0.75, 1.0, 1.25, 1.5, 2.0)}
OPTIONS: Mapping[int, Mapping[str, Any]] = {
    6: {},
    42: MULTIPLIERS,
    252: {**MULTIPLIERS, "expansions": (1, 2, 3, 4, 5, 6), "squeeze": (OFF, "on")},
}
LAYOUT = {"blocks": (64, 64, 64)}  # where seven multipliers are seven widths
PATHS = 16


def space_of(options: int) -> SearchSpace:
    entry = SPACES.find("proxylessnas_32")
    space: SearchSpace = entry.load()(**{**entry.settings, **LAYOUT, **OPTIONS[options]})
    return space


def paths(options: int) -> list[Architecture]:
    """Return architectures of the smallest space as architectures of another one."""
    small, space, rng = space_of(6), space_of(options), random.Random(0)
    return [space.parse(small.format(small.sample(rng))) for _ in range(PATHS)]


def weights_of(space: SearchSpace, **network: Any) -> SharedWeights:
    with seeded(0):
        made = build_network(space, EveryOption(), classes=10, colours=3, **network)
    return SharedWeights(made.to(memory_format=torch.channels_last))  # type: ignore[call-overload]


def images(count: int) -> Batch:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(count, 3, 32, 32, generator=generator).to(memory_format=torch.channels_last)
    return Batch(drawn, torch.randint(10, (count,), generator=generator))


def warmed_up(space: SearchSpace) -> Gates:
    """Every operation at once and every width at its largest: the first steps of TuNAS."""
    gates = {}
    for decision in space.decisions:
        count = len(decision.options)
        wide = decision.name in space.widths
        gates[decision.name] = Gate(index=count - 1) if wide else Gate(weights=torch.full((count,), 1 / count))
    return gates


def in_turn(weights: SharedWeights, gates: Sequence[Gates], batch: Batch) -> Callable[[], object]:
    """A step on the next gates at every call."""

    def endless() -> Iterator[Gates]:
        while True:
            yield from gates

    following = endless()
    return lambda: weights.fit(batch, next(following))


def alone(options: int, batch: int, threads: int, *, warm_up: bool) -> dict[str, float]:
    """Here and now, in a process that did nothing else: MB of a step, and of what stays."""
    torch.set_num_threads(threads)
    keep_memory()
    space = space_of(options)
    weights = weights_of(space, rematerialize=warm_up)
    gates = [warmed_up(space)] if warm_up else [path_gates(space, path) for path in paths(options)]
    step = in_turn(weights, gates, images(batch))
    for _ in range(2 * len(gates)):  # momentum is there, and whatever libraries keep
        step()
    constant = 3 * sum(p.numel() * p.element_size() for p in weights.parameters.values()) / 2**20
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    for _ in gates:
        step()
    return {"constant_mb": constant, "peak_mb": resident_mb("VmHWM")}


def asked_alone(*arguments: str) -> dict[str, float]:
    ended = subprocess.run([sys.executable, __file__, "--alone", *arguments], capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{arguments} ended with {ended.returncode}:\n{ended.stderr}")
    answer: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return answer


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--alone", type=int, choices=list(OPTIONS), help=argparse.SUPPRESS)
    parser.add_argument("--warm-up", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.alone:
        print(json.dumps(alone(given.alone, given.batch, given.threads, warm_up=given.warm_up)))
        return
    torch.set_num_threads(given.threads)
    batch = images(given.batch)
    supernets = {options: (space_of(options), weights_of(space_of(options))) for options in OPTIONS}
    steps = {
        str(options): in_turn(weights, [path_gates(space, path) for path in paths(options)], batch)
        for options, (space, weights) in supernets.items()
    }
    clock = time.process_time if given.threads == 1 else time.perf_counter
    seconds = time_rounds(steps, rounds=PATHS * given.rounds // 4, warm_up=PATHS, clock=clock)
    first = seconds["6"]
    for options in OPTIONS:
        taken = seconds[str(options)]
        ratio = statistics.median(own / other for own, other in zip(taken, first, strict=True))
        common = [str(options), "--batch", str(given.batch), "--threads", str(given.threads)]
        memory, opened = asked_alone(*common), asked_alone(*common, "--warm-up")
        print(
            f"{options} options: a step {1000 * statistics.median(taken):.0f} ms, {ratio:.3f} times as long as with 6; "
            f"process at most {memory['peak_mb']:.0f} MB, "
            f"weights, gradients and momentum {memory['constant_mb']:.0f} MB; "
            f"all operations at once, rematerialised: at most {opened['peak_mb']:.0f} MB"
        )


if __name__ == "__main__":
    main()
