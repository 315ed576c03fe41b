"""Draw the README's picture: quality of the best network so far against minutes of processor time, from measured runs.

    python benchmarks/quality_figure.py --runs FOLDER                    # of benchmarks/own_data.py: writes quality.csv
    python benchmarks/quality_figure.py                                  # draws docs/results/quality.csv again
    python benchmarks/quality_figure.py --csv docs/results/own-data.csv  # ends of searches only: a dot per seed

A search that is stopped at any time would return its best network so far: the architecture after an epoch, the best
trial, or the leader of the finalist race. The table knows the test accuracy of each. A line is the mean over seeds, and
a mark the end of each. From four seeds on, a band reaches from the worst to the best. A seed of which only the end is
known is a mark alone. Times of records are shares of the processor time of the whole process.

The picture is narrow, and its letters are large: it is also read at the width of a telephone.
"""

from __future__ import annotations

import argparse
import bisect
import csv
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from archloom.benchmarks.base import Benchmark
from archloom.core.settings import Settings
from archloom.execution.run_folder import RunFolder
from archloom.reports.figures import MUTED, colour_of, dash_of, svg
from archloom.searches.records import EpochRecord, FinalistRecord, SearchRecord, TrialRecord, read_record
from archloom.spaces import Architecture

ROOT = Path(__file__).resolve().parents[1]
SOURCE, PICTURE = ROOT / "docs" / "results" / "quality.csv", ROOT / "docs" / "images" / "quality.svg"
SHAPES = (("o", 7.5), ("s", 4.5), ("^", 6.0), ("D", 5.0))  # with sizes: two that end at one place are both seen
LABEL = "Test accuracy of the best network so far against minutes of processor time"
ROWS: Mapping[str, str] = {  # of benchmarks/own_data.py, and how the picture names them
    "gibbs": "search and race (default)",
    "no_search": "race alone",
    "random": "random search",
    "evolution": "evolution",
}
MOMENTS = 240  # of a line
FEW_SEEDS = 4  # fewer have no band: of two it is no range
BEST = (94.37, "best of all 15,625 networks")  # of the table; a test compares it with the measured searches
SIZE, SHOWN_WIDTH = (4.8, 3.4), 640  # inches, and pixels on a page
SHOWN_BELOW = 1.6  # the axis begins so many times the range of the ends below the worst end
DEFAULT_SIZE = 0.3  # the race's bonus for size where a configuration has none

Look = Callable[[Architecture], float]


@dataclass(frozen=True)
class Point:
    """From so many minutes on, the best network of a search had this test accuracy."""

    row: str
    seed: int
    minutes: float
    test_accuracy: float


COLUMNS = tuple(field.name for field in fields(Point))


# --- from run folders


def find_leaders(
    history: Sequence[SearchRecord], notes: Sequence[FinalistRecord], size: float
) -> Iterator[tuple[float, Architecture]]:
    """Yield the seconds since the start and the network that the search would return then, after every record."""
    seconds, best = 0.0, -float("inf")
    for record in history:
        seconds += record.seconds
        if isinstance(record, EpochRecord):
            yield seconds, record.architecture
        elif isinstance(record, TrialRecord) and not record.pruned and record.score > best:
            best = record.score
            yield seconds, record.architecture
    for number, note in enumerate(notes, 1):
        seconds += note.seconds
        yield seconds, lead(notes[:number], size)


def lead(notes: Sequence[FinalistRecord], size: float) -> Architecture:
    """Return the leader of a race: of the longest trainings, the best by the mean without the first round."""
    longest, first = max(note.steps for note in notes), min(note.steps for note in notes)
    evidence = [note for note in notes if note.steps > first] or list(notes)
    scores: dict[Architecture, list[float]] = {}
    for note in evidence:
        scores.setdefault(note.architecture, []).append(note.rank_by(size))
    contestants = dict.fromkeys(note.architecture for note in notes if note.steps == longest)
    return min(contestants, key=lambda one: statistics.fmean(scores[one]))


def trace(
    row: str, seed: int, leaders: Sequence[tuple[float, Architecture]], final: Architecture, minutes: float, look: Look
) -> list[Point]:
    """Return a point where the accuracy changes, and one at the end for the network that was returned."""
    total = leaders[-1][0] if leaders else 1.0
    points: list[Point] = []
    for seconds, architecture in leaders:
        accuracy = look(architecture)
        if not points or points[-1].test_accuracy != accuracy:
            points.append(Point(row, seed, round(minutes * seconds / total, 3), accuracy))
    return [*points, Point(row, seed, round(minutes, 3), look(final))]


def read_folder(place: Path, table: Benchmark) -> list[Point]:
    """Return the points of one search of benchmarks/own_data.py."""
    run = RunFolder.open(place)
    result = run.read_result() or {}
    dataset = str(result["table_entry"]["dataset"])
    row, _, seed = place.name.rpartition("-")
    notes = [FinalistRecord.from_json(value) for value in run.read_notes()]
    leaders = list(find_leaders([read_record(value) for value in run.read_metrics()], notes, _size(run.config)))
    minutes = float(place.with_suffix(".seconds").read_text()) / 60

    def look(architecture: Architecture) -> float:
        return round(table.look_up(architecture, dataset).test, 2)

    return trace(row, int(seed), leaders, Architecture(dict(result["architecture"])), minutes, look)


def _size(config: Settings) -> float:
    return float(dict(config.get("race") or {}).get("size", DEFAULT_SIZE))


def collect(folder: Path) -> list[Point]:
    """Return the points of all finished searches of the rows that are drawn."""
    from archloom.benchmarks.nb201 import Nb201Table

    table = Nb201Table.find(folder / "images-5000")
    if table is None:
        sys.exit(f"{folder / 'images-5000'} must have nasbench201, as benchmarks/own_data.py leaves it")
    found: list[Point] = []
    for place in sorted((folder / "runs").iterdir()):
        if place.name.rpartition("-")[0] in ROWS and (place / "architecture.json").exists():
            found += read_folder(place, table)
    return found


# --- from files


def read_points(path: Path) -> list[Point]:
    """Return the points of a file, of rows that are drawn; leave with one line where it cannot be read."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["row"] in ROWS and row["test_accuracy"]]
        return [Point(row["row"], int(row["seed"]), float(row["minutes"]), float(row["test_accuracy"])) for row in rows]
    except (OSError, KeyError, ValueError, TypeError) as error:
        sys.exit(f"{path} must have the columns {', '.join(COLUMNS)}: {error}")


def write_points(points: Sequence[Point], path: Path) -> None:
    """Write points for the next drawing."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *map(astuple, points)])


# --- the picture


def split_seeds(points: Sequence[Point]) -> list[list[Point]]:
    """Return the points of every seed, in the order of time."""
    ordered = sorted(points, key=lambda one: (one.seed, one.minutes))
    return [list(own) for _, own in groupby(ordered, key=lambda one: one.seed)]


def average(seeds: Sequence[Sequence[Point]]) -> list[tuple[float, float, float, float]]:
    """Return moments with the mean, the worst and the best of all seeds, from when all have a network."""
    start, end = max(own[0].minutes for own in seeds), max(own[-1].minutes for own in seeds)
    moments = [start + (end - start) * place / (MOMENTS - 1) for place in range(MOMENTS)]
    found = []
    for moment in moments:
        values = [_at(own, moment) for own in seeds]
        found.append((moment, statistics.fmean(values), min(values), max(values)))
    return found


def _at(own: Sequence[Point], moment: float) -> float:
    place = bisect.bisect_right([one.minutes for one in own], moment + 1e-9)
    return own[max(0, place - 1)].test_accuracy


def draw_points(points: Sequence[Point], figure: Any) -> None:
    """Draw a line for every row, and a dot where each of its searches ended."""
    axes = figure.subplots()
    value, name = BEST
    axes.axhline(value, color=MUTED, linewidth=0.8)
    axes.annotate(name, (1, value), xycoords=("axes fraction", "data"), xytext=(0, 2), textcoords="offset points",
                  ha="right", va="bottom", color="#4b5563")  # fmt: skip
    for place, (row, name) in enumerate(ROWS.items()):
        seeds = split_seeds([one for one in points if one.row == row])
        if seeds:
            _draw_row(seeds, place, name, axes)
    axes.set_ylim(*_limits(points))
    axes.set_xlim(left=0)
    axes.set_title("test accuracy of the best network so far, %", loc="left", pad=8)
    axes.set_xlabel("minutes of processor time")
    figure.legend(loc="outside lower center", ncols=2, handlelength=3.4)


def _draw_row(seeds: Sequence[Sequence[Point]], place: int, name: str, axes: Any) -> None:
    label, colour = f"{name}, {len(seeds)} {'seed' if len(seeds) == 1 else 'seeds'}", colour_of(place)
    shape, size = SHAPES[place]
    traced = [own for own in seeds if len(own) > 1]
    if traced:
        moments, means, lows, highs = zip(*average(traced), strict=True)
        if len(traced) >= FEW_SEEDS:
            axes.fill_between(moments, lows, highs, color=colour, alpha=0.13, linewidth=0, step="post")
        axes.step(moments, means, dash_of(place), where="post", color=colour, linewidth=1.8)
    ends = [own[-1] for own in seeds]
    axes.plot([one.minutes for one in ends], [one.test_accuracy for one in ends], shape, color=colour, markersize=size,
              markeredgecolor="#ffffff", markeredgewidth=0.5, clip_on=False, zorder=3 + place)  # fmt: skip
    axes.plot([math.nan] * 2, [math.nan] * 2, shape + (dash_of(place) if traced else ""), color=colour, markersize=5,
              label=label)  # fmt: skip


def _limits(points: Sequence[Point]) -> tuple[float, float]:
    """Return the range of the axis: the upper part, where searches differ; first guesses may lie far below."""
    ends = [own[-1].test_accuracy for row in ROWS for own in split_seeds([one for one in points if one.row == row])]
    low, high = min(ends), max(BEST[0], *(one.test_accuracy for one in points))
    room = max(0.5, high - low)
    return low - SHOWN_BELOW * room, high + 0.2 * room


def draw_place() -> str:
    """Return a picture that says that nothing was measured yet: it cannot be mistaken for a result."""
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 120" role="img" aria-label="not measured yet">'
        '<rect x="1" y="1" width="718" height="118" fill="#ffffff" stroke="#9ca3af" stroke-dasharray="6 4"/>'
        '<text x="360" y="65" text-anchor="middle" font-family="sans-serif" font-size="16" fill="#4b5563">'
        "not measured yet: benchmarks/quality_figure.py draws docs/results/quality.csv here</text></svg>\n"
    )


def draw(points: Sequence[Point]) -> str:
    """Return the picture of the points, or of none."""
    if not points:
        return draw_place()
    return on_paper(svg(partial(draw_points, points), height=SIZE[1], width=SIZE[0], label=LABEL))


def on_paper(drawn: str) -> str:
    """Return a drawing as a file of its own, on white paper: pages of repositories may be dark."""
    width, height = drawn[drawn.index('viewBox="') :].split('"')[1].split()[2:]
    root, rest = drawn.split(">", 1)
    named = root if "xmlns=" in root else root.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    scalable = re.sub(r' (width|height)="[^"]*"', "", named)
    sized = scalable.replace("<svg", f'<svg width="{SHOWN_WIDTH}"', 1)  # a narrower page shrinks it
    return f'{sized}><rect width="{width}" height="{height}" fill="#ffffff"/>{rest}\n'


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="a folder of benchmarks/own_data.py: read it, and write quality.csv")
    parser.add_argument("--csv", type=Path, help="draw this file; default: docs/results/quality.csv")
    parser.add_argument("--out", type=Path, help="write the picture here; default: docs/images/quality.svg")
    options = parser.parse_args(arguments)
    if options.runs is not None:
        write_points(collect(options.runs), SOURCE)
    points = read_points(options.csv or SOURCE)
    (options.out or PICTURE).write_text(draw(points), encoding="utf-8")


if __name__ == "__main__":
    main()
