"""The DARTS space judged by short trainings: published cells, random cells, and cells that searches found.

    archloom compare darts_short --data-dir DIR --out runs/compare-darts_short
    python benchmarks/darts_short.py --compared runs/compare-darts_short --data-dir DIR --out runs/darts_short

Every cell trains by the recipe `darts_short`, with two seeds. Reported are validation accuracies: the mean and the
spread over seeds, Kendall's tau between published and short accuracies, and whether the cells of a search beat the
random ones (permutation test, Welch interval). Finished trainings are kept. Writes `summary.json` beside them.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from scipy import stats

import archloom
from archloom.comparisons.statistics import Pair, compare_pairs
from archloom.core.errors import SettingError
from archloom.core.settings import Settings, merge, parse_assignments
from archloom.spaces.published import PUBLISHED

RANDOM = "random"
PRINTED = {  # test accuracy after 600 epochs on CIFAR-10, percent
    "darts_v1": 97.00,
    "darts_v2": 97.24,
    "gdas": 97.07,
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
    def spread(self) -> float:
        """Return the standard deviation over training seeds; 0 for one seed."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0


def main() -> None:
    options = _options()
    trained = [_train(cell, options) for cell in [*published_cells(), *found_cells(options.compared)]]
    summary = summarize(trained)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "summary.json").write_text(json.dumps(summary, indent=1))
    _print(trained, summary, Console(width=120))


def _options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--compared", type=Path, required=True, metavar="FOLDER", help="of `archloom compare`")
    arguments.add_argument("--data-dir", type=Path, required=True)
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="of the trainings")
    arguments.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every training")
    options = arguments.parse_args()
    if not (options.compared / "runs").is_dir():
        arguments.error(f"--compared {options.compared} is not the folder of a comparison: it has no folder 'runs'")
    return options


def published_cells() -> list[Cell]:
    """Return the published cells of the space whose accuracies are printed."""
    return [Cell("published", name, PUBLISHED[name][1]) for name in PRINTED]


def found_cells(compared: Path) -> list[Cell]:
    """Return the results of the finished searches of a comparison."""
    cells = []
    for run in sorted((compared / "runs").iterdir()):
        result = run / "architecture.json"
        if result.is_file():
            entry, _, _ = run.name.rpartition("-")
            cells.append(Cell(entry, run.name, json.loads(result.read_text())["text"]))
    return cells


def _train(cell: Cell, options: argparse.Namespace) -> TrainedCell:
    settings = settings_of(options.set, options.data_dir)
    results = [
        archloom.retrain(
            cell.text, recipe="darts_short", seed=seed, out=options.out / f"{cell.name}-{seed}", settings=settings
        )
        for seed in options.seeds
    ]
    return TrainedCell(cell, tuple(result.valid.top1 for result in results), results[0].cost.parameters)


def settings_of(given: Sequence[str], data_dir: Path) -> Settings:
    """Return settings by section."""
    settings, problems = parse_assignments(given)
    if problems:
        raise SettingError(problems)
    return merge({"space": {"name": "darts"}, "data": {"directory": str(data_dir)}}, settings)


def summarize(trained: Sequence[TrainedCell]) -> dict[str, Any]:
    """Return rows, the agreement with published accuracies, and a verdict for every strategy."""
    rows = [{**asdict(one), "mean": one.mean, "spread": one.spread} for one in trained]
    return {"cells": rows, "kendall": _agreement(trained), "verdicts": _verdicts(trained)}


def _agreement(trained: Sequence[TrainedCell]) -> Mapping[str, float] | None:
    """Return Kendall's tau between published and short accuracies of the published cells."""
    pairs = [(PRINTED[one.cell.name], one.mean) for one in trained if one.cell.group == "published"]
    if len(pairs) < 3:
        return None
    found = stats.kendalltau(*zip(*pairs, strict=True))
    return {"tau": float(found.statistic), "p": float(found.pvalue), "cells": len(pairs)}


def _verdicts(trained: Sequence[TrainedCell]) -> dict[str, str]:
    """Return how the cells of each strategy, and the published ones, do against the random ones."""
    groups: dict[str, list[float]] = {}
    for one in trained:
        groups.setdefault(one.cell.group, []).append(one.mean)
    others = groups.pop(RANDOM, [])
    pairs = {name: Pair(values, others) for name, values in groups.items()}
    return {name: verdict.sentence for name, verdict in compare_pairs(pairs, against=RANDOM).items()}


def _print(trained: Sequence[TrainedCell], summary: Mapping[str, Any], console: Console) -> None:
    table = Table("cell", "from", "validation accuracy", "parameters", "published")
    for one in sorted(trained, key=lambda one: -one.mean):
        printed = f"{PRINTED[one.cell.name]:.2f}" if one.cell.group == "published" else ""
        accuracy = f"{one.mean:.2f} ± {one.spread:.2f}"
        table.add_row(one.cell.name, one.cell.group, accuracy, f"{one.parameters:,}", printed)
    console.print(table)
    if summary["kendall"] is not None:
        found = summary["kendall"]
        console.print(f"Kendall's tau between published and short accuracies: {found['tau']:.2f}, p = {found['p']:.2f}")
    for name, sentence in summary["verdicts"].items():
        console.print(f"{name}: {sentence}")


if __name__ == "__main__":
    main()
