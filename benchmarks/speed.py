"""Time a step of a search or a retraining: module by module, fused on torch's loops, and on compiled ones.

    python benchmarks/speed.py [--workload NAME ...] [--threads 2] [--rounds 16] [--memory] [--json FILE]
    python benchmarks/speed.py --beside adapter:make --strong adapter:make_tuned --threads 1
    python benchmarks/speed.py --list

A step is one `strategy.step` of a real strategy on real shared weights, or one step of the loop that retrains, on
random images of CIFAR's shape. The variants (`plain` with channels first, `torch` and `auto` with channels last,
`again` as `auto`, with cells computed again on the way back instead of kept; if asked for, `compile` by way of
`torch.compile`, which takes minutes to begin, and `bfloat16` as `auto` with mixed precision) have a network, a
strategy and a generator each, from the same seeds, and alternate round by round in one process. A retraining has
`plain` and `torch`, its modules in both layouts, and `auto`, where nb201 runs as one compiled function. Times drift
with what else the machine does, so the figure that counts is the median over rounds of the ratio within a round. On one
thread times are of the processor, which stops while others run; on more they are of the clock.

`--beside module:function` adds an implementation from elsewhere to the rotation, `--strong module:function` the same
implementation tuned as far as its maths allow ("tuned"). `function(workload, seed=...)` gets the
`archloom.latency.step_timing.Workload` or the `retrain_step.RetrainWorkload` and returns a function that does one step:
the same parts (weight step, architecture step) on as many images. The module may lie in the present folder. Where paths
are sampled it draws its own, so that only the median over many rounds compares. docs/results/speed.md has the recipe.

Memory that a step frees stays with the process, as in a search, and for all variants; `--give-back` leaves that to the
C library.

`--memory` runs every variant in a fresh process and tells the peak beyond what was resident before the network was
built. The share of the peak is of this machine's fastest 3x3 convolution, measured at the start over a few shapes. It
counts multiply-adds of convolutions and linear layers only, by the shapes of the plain network (`CostTable`; of a
sampled path the mean over all): a forward pass, one more for gradients by the inputs, one more for those by the
weights.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch is loaded: threads that wait must not spin

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional as F

import archloom
from archloom import fast as kernels
from archloom.core.files import write_atomically
from archloom.execution.installation import installation
from archloom.execution.machine import keep_memory
from archloom.execution.survey import load_average, survey
from archloom.latency.network_timing import choose_clock
from archloom.latency.step_timing import CLASSES, IMAGE_SHAPE, Step, Workload, time_rounds
from archloom.objectives.cost import CostTable, cost_of
from one_step import BESIDE, RARE, TUNED, VARIANTS, Task, run_alone
from retrain_step import RetrainWorkload

PEAK_ROUNDS = 8
PEAK_SHAPES = ((64, 16, 32), (64, 32, 16), (64, 64, 16), (64, 64, 32), (32, 128, 16), (32, 256, 8))  # images, C, side
BASELINES = ("plain", BESIDE, TUNED)  # what the others are compared with
WARM_UP = 2
SAMPLED_ROUNDS = 16  # paths differ in cost: fewer say little


@dataclass(frozen=True)
class Measured:
    """A workload, and what its figures are computed with."""

    workload: Workload | RetrainWorkload
    passes: int  # as long as a forward pass: 3 for a weight step, 2 for an architecture step
    sampled: bool = False  # one path instead of all options
    rounds: int = SAMPLED_ROUNDS


def _nb201(strategy: str, channels: int, cells: int) -> Workload:
    return Workload(
        space="nb201", strategy=strategy, channels=channels, batch=64, space_settings={"cells_per_stage": cells}
    )


def _table() -> dict[str, Measured]:
    table = {}
    for channels, cells in ((16, 1), (16, 5), (8, 1)):
        size = f"c{channels}_n{cells}"
        rounds = 6 if cells > 1 else 10
        table[f"nb201_darts_{size}"] = Measured(_nb201("darts", channels, cells), passes=5, rounds=rounds)
        table[f"nb201_gdas_{size}"] = Measured(_nb201("gdas", channels, cells), passes=5, sampled=True)
        # the maths of the public code: options that do not run pass gradient to the logits, too
        code = replace(_nb201("gdas", channels, cells), strategy_settings={"gradient": "nb201_code"})
        table[f"nb201_gdas_code_{size}"] = Measured(code, passes=5, sampled=True)
        table[f"nb201_single_{size}"] = Measured(_nb201("rsps", channels, cells), passes=3, sampled=True)
    second = {"order": "second", "products": "differences"}
    darts = {"space": "darts", "strategy": "darts", "channels": 16, "batch": 16}
    table["darts_first"] = Measured(Workload(**darts), passes=5, rounds=5)
    # a virtual step (3), evaluated by weights and logits (3), both sides of a difference (2 each), the step itself (3)
    table["darts_second"] = Measured(Workload(**darts, strategy_settings=second), passes=13, rounds=4)
    # as many cells, and reductions among them, as the public code of GDAS has with N=2
    gdas = Workload(space="darts", strategy="gdas", channels=16, batch=16, space_settings={"cells": 6})
    table["darts_gdas"] = Measured(gdas, passes=5, sampled=True)
    return table | _retrainings()


def _retrainings() -> dict[str, Measured]:
    nb201 = RetrainWorkload(architecture="nb201_residual", channels=16, batch=64, space_settings={"cells_per_stage": 5})
    table = {"retrain_nb201": Measured(nb201, passes=3, rounds=10)}
    for batch in (8, 32):
        darts = RetrainWorkload(
            architecture="darts_v2",
            channels=36,
            batch=batch,
            space_settings={"cells": 20},
            network_settings={"normalized_pools": False},  # as the public code retrains
        )
        table[f"retrain_darts_b{batch}"] = Measured(darts, passes=3, rounds=8)
    return table


WORKLOADS: Mapping[str, Measured] = _table()


def main() -> None:
    options = _options()
    console = Console()
    if options.list:
        for name, measured in WORKLOADS.items():
            console.print(f"{name}: {measured.workload}", soft_wrap=True, highlight=False)
        return
    torch.set_num_threads(options.threads)
    if not options.give_back:
        keep_memory()
    peak = peak_gigaflops(options.threads)
    report = {**surroundings(options), "peak_gigaflops": peak, "workloads": {}}
    console.print(
        f"{report['kernels']}; threads: {options.threads}; best 3x3 convolution {peak:.0f} GF/s", highlight=False
    )
    for name in options.workload or WORKLOADS:
        found = measure(WORKLOADS[name], options, peak=peak)
        report["workloads"][name] = found
        console.print(as_table(name, found))
        if options.json is not None:  # after each: what was measured outlives an interruption
            write_atomically(options.json, json.dumps(report, indent=1).encode())


def _options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", nargs="+", metavar="NAME", choices=WORKLOADS, help="default: all")
    usual = [name for name in VARIANTS if name not in RARE]
    parser.add_argument("--variant", nargs="+", choices=VARIANTS, default=usual, help=f"default: {' '.join(usual)}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, help="default: as many as suit the workload")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--give-back", action="store_true", help="do not keep freed memory between steps")
    parser.add_argument("--memory", action="store_true", help="peak memory, in fresh processes")
    parser.add_argument("--beside", metavar="MODULE:FUNCTION", help="another implementation to time in the same rounds")
    parser.add_argument("--strong", metavar="MODULE:FUNCTION", help="the same, tuned: timed in the same rounds")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--list", action="store_true", help="print the workloads and stop")
    options = parser.parse_args(arguments)
    if min(options.threads, 1 if options.rounds is None else options.rounds) < 1:
        parser.error("--threads and --rounds must be at least 1")
    return options


def surroundings(options: argparse.Namespace) -> dict[str, Any]:
    """Where and with what the figures were measured."""
    installed = installation(archloom.__version__)
    return {
        "machine": asdict(survey()),
        "versions": dict(installed.versions),
        "kernels": installed.kernels.line,
        "threads": options.threads,
        "memory_kept": not options.give_back,
        "wait_policy": os.environ["OMP_WAIT_POLICY"],
    }


def peak_gigaflops(threads: int) -> float:
    """Return the rate of the fastest 3x3 convolution, with the threads that are set."""
    steps, work = {}, {}
    for images, channels, side in PEAK_SHAPES:
        for layout in (torch.contiguous_format, torch.channels_last):
            name = f"{images}x{channels}x{side}x{side}, {layout}"
            steps[name] = _prepare_convolution(images, channels, side, layout)
            work[name] = 2e-9 * 9 * images * channels**2 * side**2
    times = time_rounds(steps, rounds=PEAK_ROUNDS, clock=choose_clock(threads))
    return max(work[name] / min(seconds) for name, seconds in times.items())


def _prepare_convolution(images: int, channels: int, side: int, layout: torch.memory_format) -> Step:
    image = torch.randn(images, channels, side, side).contiguous(memory_format=layout)
    kernel = torch.randn(channels, channels, 3, 3).contiguous(memory_format=layout)
    return lambda: F.conv2d(image, kernel, padding=1)


# --- measuring


def measure(measured: Measured, options: argparse.Namespace, *, peak: float) -> dict[str, Any]:
    """Return the times of every variant in the same rounds, then the memory of each alone."""
    rounds = options.rounds or measured.rounds
    tasks = {name: _task(measured, name, options) for name in list_variants(measured, options)}
    before = load_average()
    steps, clock = {name: task.step() for name, task in tasks.items()}, choose_clock(options.threads)
    times = time_rounds(steps, rounds=rounds, warm_up=WARM_UP, clock=clock)
    after = load_average()
    work = 2e-9 * measured.passes * measured.workload.batch * multiply_adds(measured)
    found = {
        "rounds": rounds,
        "load": [before, after],
        "gigaflop_per_step": work,
        "seconds": times,
        "variants": figures(times, work=work, peak=peak),
    }
    if options.memory:
        for name, task in tasks.items():
            found["variants"][name]["peak_mb"] = run_alone(task).peak_mb
    return found


def list_variants(measured: Measured, options: argparse.Namespace) -> list[str]:
    """Return what takes turns; a retraining runs its modules in both layouts, or as one compiled function."""
    known = (
        ("plain", "torch", "auto", "bfloat16") if isinstance(measured.workload, RetrainWorkload) else tuple(VARIANTS)
    )
    own = [name for name in options.variant if name in known]
    return own + [name for name in (BESIDE, TUNED) if _outside(name, options) is not None]


def _outside(variant: str, options: argparse.Namespace) -> str | None:
    return {BESIDE: options.beside, TUNED: options.strong}.get(variant)


def _task(measured: Measured, variant: str, options: argparse.Namespace) -> Task:
    """As its own process would run it; a sampled path needs some rounds until a large one was among them."""
    return Task(
        workload=measured.workload,
        variant=variant,
        beside=_outside(variant, options),
        threads=options.threads,
        rounds=SAMPLED_ROUNDS if measured.sampled else 2,
        keep_memory=not options.give_back and variant in VARIANTS,
        seed=options.seed,
    )


def multiply_adds(measured: Measured) -> float:
    """Of one image's forward pass: through every option, or through a path that takes each as often as any other."""
    if isinstance(measured.workload, RetrainWorkload):
        return cost_of(measured.workload.build_network(), IMAGE_SHAPE).multiply_adds
    space = measured.workload.build_space()
    with kernels.use_kernels("plain"):
        table = CostTable(space, classes=CLASSES, image_shape=IMAGE_SHAPE, channels=measured.workload.channels)
    fixed = table.cost({}).multiply_adds
    shares = (
        (table.cost({decision.name: option}).multiply_adds - fixed, len(decision.options))
        for decision in space.decisions
        for option in decision.options
    )
    return fixed + sum(cost / count if measured.sampled else cost for cost, count in shares)


def figures(times: Mapping[str, Sequence[float]], *, work: float, peak: float) -> dict[str, dict[str, Any]]:
    """Per variant the median time with its quartiles, its share of the peak, and how it compares within the rounds."""
    return {
        name: {
            "milliseconds": spread([1000 * value for value in seconds]),
            "share_of_peak": work / statistics.median(seconds) / peak,
            "gain": {
                other: spread([theirs / own for theirs, own in zip(times[other], seconds, strict=True)])
                for other in BASELINES
                if other in times and other != name
            },
        }
        for name, seconds in times.items()
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else 3 * list(values)
    return {"median": middle, "low": low, "high": high}


# --- printing


def as_table(name: str, found: Mapping[str, Any]) -> Table:
    loads = " to ".join("?" if load is None else f"{load:.1f}" for load in found["load"])
    others = [other for other in BASELINES if other in found["variants"]]
    table = Table("variant", "ms", *(f"{other} / it" for other in others), "of peak", "memory, MB")
    table.title = f"{name}: {found['rounds']} rounds, {found['gigaflop_per_step']:.1f} GF a step, load {loads}"
    for variant, row in found["variants"].items():
        table.add_row(
            variant,
            _written(row["milliseconds"], ".0f"),
            *(_written(row["gain"].get(other), ".2f") for other in others),
            f"{100 * row['share_of_peak']:.1f} %",
            f"{row['peak_mb']:.0f}" if "peak_mb" in row else "",
        )
    return table


def _written(values: Mapping[str, float] | None, form: str) -> str:
    """`213 (205-230)`: the median, and where half of the rounds lie."""
    if values is None:
        return ""
    return f"{values['median']:{form}} ({values['low']:{form}}-{values['high']:{form}})"


if __name__ == "__main__":
    sys.exit(main())
