"""What a pair of GibbsNAS steps costs beside a pair of DARTS steps, and how the samplers' cost grows with parameters.

    python benchmarks/gibbs_overhead.py [--threads 1] [--rounds 16] [--channels 8] [--out docs/results/gibbs-overhead]

A pair is one weight step and one architecture step on as many images. Variants take turns in one process; memory is
that of a process of its own. Passes are counted: how often a batch goes through the network forwards and backwards.
Writes OUT.json, and OUT.png with a weight sampler's step against the number of its parameters.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch is loaded: threads that wait must not spin

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from archloom.core.files import write_atomically
from archloom.core.settings import merge
from archloom.execution.machine import keep_memory
from archloom.execution.survey import load_average
from archloom.latency.step_timing import Workload, prepare_step, time_rounds
from archloom.samplers import DiagonalLbfgsPosterior
from one_step import Task, run_alone

DEFAULT = Path(__file__).parent.parent / "docs/results/gibbs-overhead"
PAIR = {"logits": {"weight_steps": 1, "images": 256}, "weights": {"noise_wait": 0.0, "noise_ramp": 0.0}}
EVERY_FOURTH = {"logit_curvature": {"learn_every": 4, "pair_share": 1.0}}
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "DARTS, first order": ("darts", {}),
    "GibbsNAS, first order, curvature at every 4th draw": ("gibbs", {**PAIR, **EVERY_FOURTH}),
    "GibbsNAS, first order, curvature at every draw": ("gibbs", PAIR),
    "GibbsNAS, second order, curvature at every 4th draw": ("gibbs", {**PAIR, "order": "second", **EVERY_FOURTH}),
    "GibbsNAS, second order, curvature at every draw": ("gibbs", {**PAIR, "order": "second"}),
}
PARAMETERS = (20_000, 100_000, 250_000, 500_000, 1_000_000)
MEMORIES = (5, 10, 20)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--rounds", type=int, default=16)
    arguments.add_argument("--channels", type=int, default=8)
    arguments.add_argument("--out", type=Path, default=DEFAULT, help="without its ending")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    keep_memory()
    before = load_average()
    pairs, grown = measure_pairs(options), measure_growth(options)
    report = {"threads": options.threads, "load": [before, load_average()], "pairs": pairs, "growth": grown}
    write_atomically(options.out.with_suffix(".json"), json.dumps(report, indent=1).encode())
    draw(grown, options.out.with_suffix(".png"))
    console = Console(width=120)
    table = Table("a pair of steps", "ms", "of DARTS", "passes", "of DARTS", "peak MB", "of DARTS")
    first = next(iter(pairs.values()))
    for name, found in pairs.items():
        columns = ("milliseconds", "passes", "peak_mb")
        cells = [(f"{found[key]:.1f}", f"{found[key] / first[key]:.2f}") for key in columns]
        table.add_row(name, *(text for pair in cells for text in pair))
    console.print(table)
    console.print(f"load before and after: {report['load']}")


def measure_pairs(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    workloads = {
        name: Workload(
            space="nb201",
            strategy=strategy,
            channels=options.channels,
            batch=64,
            space_settings={"cells_per_stage": 1},
            strategy_settings=merge(settings, {"logits": {"images": 64}} if strategy == "gibbs" else {}),
        )
        for name, (strategy, settings) in SETTINGS.items()
    }
    steps = {name: prepare_step(workload, choice="auto") for name, workload in workloads.items()}
    times = time_rounds(steps, rounds=options.rounds)
    return {
        name: {
            "milliseconds": 1000 * statistics.mean(times[name]),  # looks at the curvature come every few steps
            "passes": count_passes(workload, options.rounds),
            "peak_mb": run_alone(Task(workload=workload, threads=options.threads, rounds=8)).peak_mb,
        }
        for name, workload in workloads.items()
    }


def count_passes(workload: Workload, steps: int) -> float:
    """How often a batch goes through the network in one step, on average."""
    from archloom.supernet import SharedWeights

    counted, real = 0, SharedWeights._predict

    def counting(self, *given, **named):
        nonlocal counted
        counted += 1
        return real(self, *given, **named)

    SharedWeights._predict = counting
    try:
        step = prepare_step(workload, choice="auto")
        for _ in range(steps):
            step()
    finally:
        SharedWeights._predict = real
    return counted / steps


def measure_growth(options: argparse.Namespace) -> dict[str, Any]:
    """Time of a weight sampler's own work, and the numbers it keeps, by parameters and by memory."""
    return {str(memory): [sampler_step(count, memory, options.rounds) for count in PARAMETERS] for memory in MEMORIES}


def sampler_step(count: int, memory: int, rounds: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(count // 10, generator=generator)) for _ in range(10)]
    sampler = DiagonalLbfgsPosterior(
        parameters, generator=generator, observations=1e4, memory=memory, start="scalar", damping=0.1
    )

    def closure() -> torch.Tensor:
        for parameter in parameters:
            parameter.grad = 0.5 * parameter.detach()
        return torch.zeros(())

    for _ in range(memory):
        sampler.step(closure)
    times = time_rounds({"": lambda: sampler.step(closure)}, rounds=rounds)[""]
    kept = sum(tensor.numel() for tensor in (*sampler.steps, *sampler.changes))
    return {"parameters": count, "milliseconds": 1000 * statistics.median(times), "numbers_per_parameter": kept / count}


def draw(grown: dict[str, Any], path: Path) -> None:
    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.subplots()
    for memory, points in grown.items():
        counts = [point["parameters"] / 1000 for point in points]
        axes.plot(counts, [point["milliseconds"] for point in points], marker="o", label=f"memory {memory}")
    axes.set(xlabel="thousand parameters", ylabel="ms per draw, without passes", xlim=(0, None), ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
