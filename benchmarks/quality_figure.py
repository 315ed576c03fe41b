"""Draw the README's picture: quality of what a search found against its minutes, a dot per seed, from measured runs.

    python benchmarks/quality_figure.py

docs/results/quality.csv has a row per run: strategy, seed, minutes, rank, test_accuracy. Strategies differ in colour
and in the shape of their dots. Where all runs took the same time, each strategy has a column, and a bar is its median.
"""

from __future__ import annotations

import csv
import statistics
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from archloom.reports.figures import colour_of, svg

ROOT = Path(__file__).resolve().parents[1]
SOURCE, PICTURE = ROOT / "docs" / "results" / "quality.csv", ROOT / "docs" / "images" / "quality.svg"
COLUMNS = ("strategy", "seed", "minutes", "rank", "test_accuracy")
SHAPES = ("o", "s", "^", "D", "v", "P")
LABEL = "Test accuracy of the architecture found against minutes of search"


@dataclass(frozen=True)
class Run:
    """One measured search."""

    strategy: str
    seed: int
    minutes: float
    rank: int
    test_accuracy: float


def read_runs(path: Path) -> list[Run]:
    """Return the runs of a file; leave with one line where it cannot be read."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
            return [_read_run(row) for row in rows]
    except (OSError, KeyError, ValueError, TypeError) as error:
        sys.exit(f"{path} must have the columns {', '.join(COLUMNS)}: {error}")


def _read_run(row: dict[str, str]) -> Run:
    minutes, accuracy = float(row["minutes"]), float(row["test_accuracy"])
    return Run(row["strategy"], int(row["seed"]), minutes, int(row["rank"]), accuracy)


def draw_runs(runs: list[Run], figure) -> None:
    """Draw a dot per run; the strategy with the best median comes first."""
    axes = figure.subplots()
    strategies = sorted({run.strategy for run in runs}, key=lambda name: -_median(runs, name))
    lengths = {run.minutes for run in runs}
    for place, name in enumerate(strategies):
        own = [run for run in runs if run.strategy == name]
        axes.plot(
            [place if len(lengths) == 1 else run.minutes for run in own],
            [run.test_accuracy for run in own],
            SHAPES[place % len(SHAPES)],
            color=colour_of(place),
            alpha=0.8,
            markersize=6,
            label=f"{name}: median rank {statistics.median(run.rank for run in own):,.0f}, {len(own)} seeds",
        )
        if len(lengths) == 1:
            middle = _median(runs, name)
            axes.plot([place - 0.2, place + 0.2], [middle, middle], color="#111827", linewidth=1.6)
    if len(lengths) == 1:
        axes.set_xticks(range(len(strategies)), strategies)
        axes.set_xlim(-0.6, len(strategies) - 0.4)
    axes.set_xlabel(f"strategy, {min(lengths):g} minutes each" if len(lengths) == 1 else "minutes of search")
    axes.set_ylabel("test accuracy in the table, %")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))


def _median(runs: list[Run], strategy: str) -> float:
    return statistics.median(run.test_accuracy for run in runs if run.strategy == strategy)


def draw_place() -> str:
    """Return a picture that says that nothing was measured yet: it cannot be mistaken for a result."""
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 120" role="img" aria-label="not measured yet">'
        '<rect x="1" y="1" width="718" height="118" fill="#ffffff" stroke="#9ca3af" stroke-dasharray="6 4"/>'
        '<text x="360" y="65" text-anchor="middle" font-family="sans-serif" font-size="16" fill="#4b5563">'
        "not measured yet: benchmarks/quality_figure.py draws docs/results/quality.csv here</text></svg>\n"
    )


def main() -> None:
    """Write the picture."""
    runs = read_runs(SOURCE)
    if not runs:
        PICTURE.write_text(draw_place(), encoding="utf-8")
        return
    drawn = svg(partial(draw_runs, runs), height=3.6, label=LABEL)
    PICTURE.write_text(_on_paper(drawn), encoding="utf-8")


def _on_paper(drawn: str) -> str:
    """Return a drawing as a file of its own, on white paper: pages of repositories may be dark."""
    width, height = drawn[drawn.index('viewBox="') :].split('"')[1].split()[2:]
    root, rest = drawn.split(">", 1)
    named = root if "xmlns=" in root else root.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return f'{named}><rect width="{width}" height="{height}" fill="#ffffff"/>{rest}\n'


if __name__ == "__main__":
    main()
