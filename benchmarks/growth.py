"""What a search step costs as the work grows: with images, channels, cells and operations per edge.

    python benchmarks/growth.py [--threads 1] [--rounds 8] [--repeats 1] [--out docs/results/speed-growth]

Every point is a step of DARTS (all options) or GDAS (a sampled path) on NAS-Bench-201 in a fresh process: the median
time, and the peak memory beyond what was resident before. Along a line one thing grows and the others stay (C=8, one
cell per stage, 64 images, five operations). Operations come in the space's own order (none, skip, 1x1, 3x3, pool), so
that the steps of that line are unequal by themselves. `--repeats` goes over all points again, which spreads the noise
of a shared machine over them. Writes OUT.json and OUT.png, and prints how straight the lines are: a fit
`time = base + slope * x` with its R2, and the exponent of x that would fit best.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch is loaded: threads that wait must not spin

import argparse
import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import track
from rich.table import Table

import archloom
from archloom.core.files import write_atomically
from archloom.execution.installation import installation
from archloom.execution.survey import load_average, survey
from archloom.latency.step_timing import Workload
from archloom.searches.report_plots import PALETTE
from archloom.spaces.nb201 import OPERATIONS
from one_step import VARIANTS, Alone, Task, run_alone

DEFAULT = Path(__file__).parent.parent / "docs/results/speed-growth"
BASE = Workload(space="nb201", strategy="darts", channels=8, batch=64, space_settings={"cells_per_stage": 1})
STRATEGIES = {"darts": "DARTS", "gdas": "GDAS"}
SAMPLED = 3  # times as many rounds where paths are sampled, since these differ in cost
MEASURES = {"milliseconds": "ms per step", "peak_mb": "peak memory, MB"}
UNITS = {"milliseconds": "ms", "peak_mb": "MB"}
STYLE = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e7eb",
}


@dataclass(frozen=True)
class Line:
    """One thing that grows: what it is called, and the workload at each of its values."""

    title: str
    points: Mapping[int, Workload]


def _in_space(**settings: Any) -> Workload:
    return replace(BASE, space_settings={**BASE.space_settings, **settings})


LINES: Mapping[str, Line] = {
    "batch": Line("images per batch", {value: replace(BASE, batch=value) for value in (16, 32, 64, 96, 128)}),
    "width": Line("channels C", {value: replace(BASE, channels=value) for value in (4, 8, 16, 24, 32)}),
    "cells": Line("cells per stage", {value: _in_space(cells_per_stage=value) for value in (1, 2, 3, 4, 5)}),
    "operations": Line(
        "operations per edge", {value: _in_space(operations=OPERATIONS[:value]) for value in range(2, 6)}
    ),
}


def main() -> None:
    options = _options()
    console = Console()
    before = load_average()
    lines = measure(options, console)
    installed = installation(archloom.__version__)
    report = {
        "machine": asdict(survey()),
        "versions": dict(installed.versions),
        "kernels": installed.kernels.line,
        "variant": options.variant,
        "threads": options.threads,
        "load": [before, load_average()],
        "base": asdict(BASE),
        "lines": lines,
    }
    write_atomically(options.out.with_suffix(".json"), json.dumps(report, indent=1).encode())
    draw(lines, options.out.with_suffix(".png"))
    console.print(as_table(lines))


def _options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--line", nargs="+", choices=LINES, default=list(LINES), help="default: all")
    parser.add_argument("--variant", choices=VARIANTS, default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--out", type=Path, default=DEFAULT, help="without its ending")
    options = parser.parse_args(arguments)
    if min(options.threads, options.rounds, options.repeats) < 1:
        parser.error("--threads, --rounds and --repeats must be at least 1")
    return options


# --- measuring


def measure(options: argparse.Namespace, console: Console) -> dict[str, dict[str, Any]]:
    """Per line and strategy: what grew, the times, the memory, and how straight both are."""
    found = _measured(_points(options.line), options, console)
    return {name: {strategy: _series(LINES[name], strategy, found) for strategy in STRATEGIES} for name in options.line}


def _points(names: Sequence[str]) -> dict[str, Workload]:
    """What has to be measured; where lines meet, once."""
    workloads = (
        replace(workload, strategy=strategy)
        for name in names
        for workload in LINES[name].points.values()
        for strategy in STRATEGIES
    )
    return {_key(workload): workload for workload in workloads}


def _key(workload: Workload) -> str:
    """The same text for the same workload, also where it says what is the default."""
    settings = {"operations": OPERATIONS, **workload.space_settings}
    return json.dumps(asdict(replace(workload, space_settings=settings)), sort_keys=True)


def _measured(
    points: Mapping[str, Workload], options: argparse.Namespace, console: Console
) -> dict[str, dict[str, float]]:
    found: dict[str, list[Alone]] = {key: [] for key in points}
    todo = [key for _ in range(options.repeats) for key in points]
    for key in track(todo, description="a fresh process per point", console=console):
        found[key].append(run_alone(_task(points[key], options)))
    return {
        key: {
            "milliseconds": 1000 * statistics.median(value for alone in visits for value in alone.seconds),
            "peak_mb": max(alone.peak_mb for alone in visits),
        }
        for key, visits in found.items()
    }


def _task(workload: Workload, options: argparse.Namespace) -> Task:
    rounds = options.rounds * (SAMPLED if workload.strategy == "gdas" else 1)
    return Task(workload=workload, variant=options.variant, threads=options.threads, rounds=rounds, warm_up=2)


def _series(line: Line, strategy: str, found: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    rows = [found[_key(replace(workload, strategy=strategy))] for workload in line.points.values()]
    values = {measure: [row[measure] for row in rows] for measure in MEASURES}
    x = list(line.points)
    return {"x": x, **values, "fits": {measure: fit(x, values[measure]) for measure in MEASURES}}


def fit(x: Sequence[float], y: Sequence[float]) -> dict[str, float]:
    """A straight line through the points, how much of their variation it explains, and the best exponent of x."""
    slope, base = statistics.linear_regression(x, y)
    straight = statistics.correlation(x, y) ** 2 if len(set(y)) > 1 else 1.0  # a level line fits itself
    positive = [(math.log(a), math.log(b)) for a, b in zip(x, y, strict=True) if b > 0]
    exponent = statistics.linear_regression(*zip(*positive, strict=True)).slope if len(positive) > 1 else math.nan
    return {"base": base, "slope": slope, "r2": straight, "exponent": exponent}


# --- showing


def as_table(lines: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table("grows", "strategy", "unit", "from", "to", "base + slope x", "R2", "power", box=SIMPLE)
    for name, by_strategy in lines.items():
        for strategy, series in by_strategy.items():
            for measure, found in series["fits"].items():
                ends = (f"{series[measure][end]:.0f} at {series['x'][end]}" for end in (0, -1))
                straight = f"{found['base']:.1f} + {found['slope']:.2f} x"
                quality = (f"{found['r2']:.3f}", f"{found['exponent']:.2f}")
                table.add_row(name, STRATEGIES[strategy], UNITS[measure], *ends, straight, *quality)
    return table


def draw(lines: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """A small panel for every line and measure; dots are measured, lines are fitted."""
    with rc_context(STYLE):
        figure = Figure(figsize=(2.6 * len(lines), 4.6), layout="constrained", dpi=150)
        panels = figure.subplots(len(MEASURES), len(lines), squeeze=False, sharex="col")
        for column, (name, by_strategy) in enumerate(lines.items()):
            for row, (measure, label) in enumerate(MEASURES.items()):
                axes = panels[row][column]
                for colour, (strategy, series) in zip(PALETTE, by_strategy.items(), strict=False):
                    _draw_series(axes, series, measure, colour=colour, label=STRATEGIES[strategy])
                axes.set_ylim(
                    0, 1.3 * max(max(series[measure]) for series in by_strategy.values())
                )  # room for the names
                if column == 0:
                    axes.set_ylabel(label)
                axes.legend(frameon=False, fontsize=6.5, loc="upper left")
            panels[-1][column].set_xlabel(LINES[name].title)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def _draw_series(axes: Any, series: Mapping[str, Any], measure: str, *, colour: str, label: str) -> None:
    found, x = series["fits"][measure], series["x"]
    axes.plot(x, series[measure], "o", color=colour, markersize=4, label=f"{label}, R² {found['r2']:.3f}")
    ends = [min(x), max(x)]
    axes.plot(ends, [found["base"] + found["slope"] * end for end in ends], color=colour, linewidth=1.2)
    axes.set_xticks(x)


if __name__ == "__main__":
    sys.exit(main())
