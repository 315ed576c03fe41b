"""How well short trainings rank cells of NAS-Bench-201: their correlation with the validation column of the table.

    python benchmarks/fidelity.py run FOLDER --data-dir DIR --steps 240 [--name NAME] [--set data.flip=false]
    python benchmarks/fidelity.py show FOLDER

`run` trains 34 cells as the finalist race does, on one thread, and writes NAME.json below FOLDER. The cells are a fixed
sample by ranks of the validation column, and the references of the space. `--most-multiply-adds 60` ranks and samples
only cells that a limit of 60 million allows, and `--times 2` takes twice as many. `show` prints rank correlations over
all cells and over those above 89.5 %, by the loss alone and with a bonus for size. Test accuracies are not read.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import spearmanr

from archloom.benchmarks.nb201 import Nb201Table
from archloom.core.settings import merge, parse_assignments
from archloom.searches.build import SearchBuilder
from archloom.searches.race_proposals import Entrant
from archloom.searches.spec import SearchSpec
from archloom.spaces import Architecture
from own_data import write_images

DATASET, GOOD = "cifar10", 89.5
SAMPLED = ((0, 100, 8), (100, 1_000, 10), (1_000, 4_000, 8), (4_000, 12_000, 6))  # ranks, and how many of them
BONUSES = (0.0, 0.2, 0.3, 0.4, 0.6, 0.8)  # on the logarithm of the parameters
SETTINGS: Mapping[str, Any] = {
    "seed": 60,
    "space": {"name": "nb201", "cells_per_stage": 1},
    "network": {"channels": 8},
    "search": {"epochs": 1},
    "race": {"contestants": 2, "space": {"cells_per_stage": 5}, "shrink": 2, "batch_size": 32},
    "data": {"name": "npz", "path": "images.npz"},
}


@dataclass(frozen=True)
class Sample:
    """Which cells a study trains: how many times the usual number, by which seed, and at what cost at most."""

    times: int = 1
    seed: int = 5
    most_multiply_adds: float = math.inf  # in millions

    def draw(self, table: Nb201Table) -> Iterator[Architecture]:
        """Yield cells of all qualities, more of the good ones."""
        column, costs = table.column(DATASET, metric="valid"), table.column(DATASET, metric="flops_M")
        rng, allowed = (
            random.Random(self.seed),
            [row for row, cost in enumerate(costs) if cost <= self.most_multiply_adds],
        )
        order = sorted(allowed, key=lambda row: -column[row])
        for first, last, count in SAMPLED:
            yield from (table.architecture(row) for row in rng.sample(order[first:last], self.times * count))

    def keep_allowed(self, table: Nb201Table, cells: Iterable[Architecture]) -> list[Architecture]:
        """Return the cells that cost no more than is allowed."""
        costs = table.column(DATASET, metric="flops_M")
        return [cell for cell in cells if costs[table.row(cell)] <= self.most_multiply_adds]


def run(
    folder: Path, data_dir: Path, *, name: str, steps: int, images: int, sample: Sample, changes: Sequence[str]
) -> None:
    """Train every cell briefly and write down its loss, size and place in the table."""
    torch.set_num_threads(1)
    place = write_images(folder, data_dir, images)
    own: dict[str, Any] = {"data": {"directory": str(place)}}
    spec = SearchSpec.resolve(merge(SETTINGS, own, parse_assignments(changes)[0]))
    builder, table = SearchBuilder(spec, spec.load_data()), Nb201Table.find(data_dir)
    training, column = builder.short_training(), table.column(DATASET, metric="valid")
    cells = dict.fromkeys([*sample.draw(table), *sample.keep_allowed(table, builder.references().values())])
    rows = []
    for cell in track(cells, name):
        start = time.process_time()
        record = training(Entrant(cell, ""), steps, 0, lambda: False)
        rows.append(
            {
                "valid": float(column[table.row(cell)]),
                "loss": record.valid_loss,
                "accuracy": record.valid_score,
                "parameters": record.parameters,
                "seconds": time.process_time() - start,
            }
        )
    (folder / f"{name}.json").write_text(json.dumps(rows))


def correlation(rows: Sequence[Mapping[str, float]], score: Callable[[Mapping[str, float]], float]) -> str:
    """Return the rank correlation of a score, lower is better, with the table."""
    return f"{-float(spearmanr([score(row) for row in rows], [row['valid'] for row in rows]).statistic):.2f}"


def show(folder: Path) -> None:
    """Print one line for each study."""
    names = [f"{kind}, bonus {bonus}" for bonus in BONUSES for kind in ("all", "good")]
    table = Table("study", "cells", "CPU seconds each", *names)
    for path in sorted(folder.glob("*.json")):
        rows = [
            {**row, "loss": math.inf if row["loss"] is None else row["loss"]} for row in json.loads(path.read_text())
        ]
        good = [row for row in rows if row["valid"] > GOOD]
        cells = []
        for bonus in BONUSES:

            def score(row: Mapping[str, float], bonus: float = bonus) -> float:
                return row["loss"] - bonus * math.log(row["parameters"])

            cells += [correlation(rows, score), correlation(good, score)]
        seconds = statistics.fmean(row["seconds"] for row in rows)
        table.add_row(path.stem, str(len(rows)), f"{seconds:.1f}", *cells)
    Console(width=140).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("folder", type=Path)
    running.add_argument("--data-dir", type=Path, required=True)
    running.add_argument("--steps", type=int, default=240)
    running.add_argument("--images", type=int, default=5_000)
    running.add_argument("--times", type=int, default=1, help="as many cells as usual")
    running.add_argument("--sample", type=int, default=5, help="seed of the choice of cells")
    running.add_argument("--most-multiply-adds", type=float, default=math.inf, metavar="MILLIONS")
    running.add_argument("--name")
    running.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    commands.add_parser("show").add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.command == "show":
        show(options.folder)
    else:
        name, steps = options.name or f"{options.steps}-steps", options.steps
        sample, images = Sample(options.times, options.sample, options.most_multiply_adds), options.images
        run(options.folder, options.data_dir, name=name, steps=steps, images=images, sample=sample, changes=options.set)


if __name__ == "__main__":
    main()
