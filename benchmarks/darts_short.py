"""The DARTS space judged by short trainings: published cells, random cells, and cells that searches found.

    archloom compare darts_short --data-dir DIR --out runs/compare-darts_short
    python benchmarks/darts_short.py --compared runs/compare-darts_short --data-dir DIR --out runs/darts_short \\
        --table docs/results/darts-short.csv

Every cell trains by the recipe `darts_short`, with two seeds: first all cells with one seed, then with the other.
Reported are validation accuracies: the mean and the spread over seeds, Kendall's tau between published and short
accuracies, and whether the cells of a search beat the random ones (permutation test, Welch interval). A training is
written into the table when it ends, and one that stands there is not repeated. So the work may take several sittings.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from rich.console import Console
from rich.table import Table
from scipy import stats

import archloom
from archloom.comparisons.statistics import Pair, compare_pairs
from archloom.core.errors import SettingError
from archloom.core.files import write_atomically
from archloom.core.settings import Settings, merge, parse_assignments
from archloom.spaces.published import PUBLISHED

RANDOM, PRINTED_GROUP, SEARCHED = "random", "published", "all searches"
PRINTED = {  # test accuracy after 600 epochs on CIFAR-10, percent
    "darts_v1": 97.00,
    "darts_v2": 97.24,
    "gdas": 97.07,
    "snas": 97.15,
    "p_darts": 97.50,
    "pc_darts": 97.43,
    "drnas": 97.54,
}


@dataclass(frozen=True)
class Cell:
    """A cell to train: where it comes from, and its text form."""

    group: str  # `published`, or the entry of the comparison
    name: str
    text: str


@dataclass(frozen=True)
class Training:
    """A cell, the seed of one training, and the validation accuracy after it: a line of the table."""

    group: str
    name: str
    seed: int
    accuracy: float
    parameters: int
    text: str

    @property
    def cell(self) -> Cell:
        """Return what was trained."""
        return Cell(self.group, self.name, self.text)


@dataclass(frozen=True)
class TrainedCell:
    """A cell and its validation accuracies, one per training seed."""

    cell: Cell
    accuracies: tuple[float, ...]
    parameters: int

    @property
    def mean(self) -> float:
        """Return the mean over training seeds."""
        return statistics.mean(self.accuracies)

    @property
    def spread(self) -> float | None:
        """Return the standard deviation over training seeds; None for one seed."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else None


def main() -> None:
    options = _options()
    done = read_table(options.table)
    found = found_cells(options.compared) if options.compared else []
    for cell, seed in list_missing([*published_cells(), *found], done, options.seeds):
        done.append(_train(cell, seed, options))
        write_table(options.table, done)
    trained = gather(done)
    _print(trained, Console(width=140))


def _options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument(
        "--compared", type=Path, metavar="FOLDER", help="of `archloom compare`; train its cells, too"
    )
    arguments.add_argument("--data-dir", type=Path, required=True)
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--table", type=Path, required=True, metavar="CSV", help="trainings; those in it are kept")
    arguments.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="of the trainings")
    arguments.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every training")
    options = arguments.parse_args()
    if options.compared and not (options.compared / "runs").is_dir():
        arguments.error(f"--compared {options.compared} is not the folder of a comparison: it has no folder 'runs'")
    return options


def published_cells() -> list[Cell]:
    """Return the published cells of the space whose accuracies are printed."""
    return [Cell(PRINTED_GROUP, name, PUBLISHED[name][1]) for name in PRINTED]


def found_cells(compared: Path) -> list[Cell]:
    """Return the results of the finished searches of a comparison."""
    cells = []
    for run in sorted((compared / "runs").iterdir()):
        result = run / "architecture.json"
        if result.is_file():
            entry, _, _ = run.name.rpartition("-")
            cells.append(Cell(entry, run.name, json.loads(result.read_text())["text"]))
    return cells


def read_table(path: Path) -> list[Training]:
    """Return the trainings that a table holds; none where there is no such file."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return [
            Training(
                line["group"],
                line["name"],
                int(line["seed"]),
                float(line["accuracy"]),
                int(line["parameters"]),
                line["text"],
            )
            for line in csv.DictReader(file)
        ]


def write_table(path: Path, trainings: Sequence[Training]) -> None:
    """Write trainings to a table."""
    text = io.StringIO()
    names = [field.name for field in fields(Training)]
    csv.writer(text, lineterminator="\n").writerows([names, *map(astuple, trainings)])
    write_atomically(path, text.getvalue().encode())


def list_missing(cells: Sequence[Cell], done: Sequence[Training], seeds: Sequence[int]) -> list[tuple[Cell, int]]:
    """Return the trainings that are missing, of given cells and of those in the table: seed after seed."""
    known = {(one.name, one.seed) for one in done}
    every: dict[str, Cell] = {}
    for cell in [*cells, *(one.cell for one in done)]:
        if every.setdefault(cell.name, cell).text != cell.text:
            raise SettingError(f"two cells have the name {cell.name}; give --table another file")
    return [(cell, seed) for seed in seeds for cell in every.values() if (cell.name, seed) not in known]


def gather(done: Sequence[Training]) -> list[TrainedCell]:
    """Return every cell with its accuracies."""
    found: dict[str, list[Training]] = {}
    for one in done:
        found.setdefault(one.name, []).append(one)
    return [TrainedCell(of[0].cell, tuple(one.accuracy for one in of), of[0].parameters) for of in found.values()]


def _train(cell: Cell, seed: int, options: argparse.Namespace) -> Training:
    settings = settings_of(options.set, options.data_dir)
    out = options.out / f"{cell.name}-{seed}"
    result = archloom.retrain(cell.text, recipe="darts_short", seed=seed, out=out, settings=settings)
    return Training(cell.group, cell.name, seed, round(result.valid.top1, 2), result.cost.parameters, cell.text)


def settings_of(given: Sequence[str], data_dir: Path) -> Settings:
    """Return settings by section."""
    settings, problems = parse_assignments(given)
    if problems:
        raise SettingError(problems)
    return merge({"space": {"name": "darts"}, "data": {"directory": str(data_dir)}}, settings)


def find_agreement(trained: Sequence[TrainedCell]) -> Mapping[str, float] | None:
    """Return Kendall's tau between published and short accuracies of the published cells."""
    pairs = [(PRINTED[one.cell.name], one.mean) for one in trained if one.cell.group == PRINTED_GROUP]
    if len(pairs) < 3:
        return None
    found = stats.kendalltau(*zip(*pairs, strict=True))
    return {"tau": float(found.statistic), "p": float(found.pvalue), "cells": len(pairs)}


def find_verdicts(trained: Sequence[TrainedCell]) -> dict[str, str]:
    """Return how the cells of each strategy, of all together, and the published ones do against the random ones."""
    groups: dict[str, list[float]] = {}
    for one in trained:
        groups.setdefault(one.cell.group, []).append(one.mean)
    others = groups.pop(RANDOM, [])
    groups[SEARCHED] = [one.mean for one in trained if one.cell.group not in (RANDOM, PRINTED_GROUP)]
    pairs = {name: Pair(values, others) for name, values in groups.items() if values}
    return {name: verdict.sentence for name, verdict in compare_pairs(pairs, against=RANDOM).items()}


def _print(trained: Sequence[TrainedCell], console: Console) -> None:
    table = Table("cell", "from", "validation accuracy", "parameters", "published")
    for one in sorted(trained, key=lambda one: -one.mean):
        printed = f"{PRINTED[one.cell.name]:.2f}" if one.cell.group == PRINTED_GROUP else ""
        accuracy = f"{one.mean:.2f}" if one.spread is None else f"{one.mean:.2f} ± {one.spread:.2f}"
        table.add_row(one.cell.name, one.cell.group, accuracy, f"{one.parameters:,}", printed)
    console.print(table)
    found = find_agreement(trained)
    if found is not None:
        console.print(f"Kendall's tau between published and short accuracies: {found['tau']:.2f}, p = {found['p']:.2f}")
    for name, sentence in find_verdicts(trained).items():
        console.print(f"{name}: {sentence}")


if __name__ == "__main__":
    main()
