"""What the finals are worth without a posterior: finalists by chance, or by the probabilities of another search.

    python benchmarks/finals_control.py recipes/cifar10/gibbs.toml --seeds 0-4 --data-dir DIR --out runs/chance.json
    python benchmarks/finals_control.py recipes/cifar10/gibbs.toml --runs runs/darts-0 runs/darts-1 --data-dir DIR

The finals are those of the recipe (how many finalists, for how long, how wide). `--runs` takes, for each run, the
architecture that its last probabilities favour and its neighbours, without `none`; its number is the seed.
With `--bound` nothing is trained: told is the best of the finalists by the table, which no finals could beat.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

from rich.console import Console

from archloom.benchmarks.nb201 import Nb201Table
from archloom.runs.build import build_search
from archloom.runs.experiment import Experiment
from archloom.runs.settings import merge, read_toml
from archloom.spaces import NONE, Architecture, SearchSpace
from nb201_grid import DATASETS, seeds, spread


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("recipe", type=Path)
    arguments.add_argument("--seeds", type=seeds, default=seeds("0-4"))
    arguments.add_argument("--runs", nargs="+", type=Path, default=[])
    arguments.add_argument("--data-dir", type=Path, required=True)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--bound", action="store_true")
    arguments.add_argument("--out", type=Path)
    options = arguments.parse_args()
    console, table, rows = Console(width=150), Nb201Table.open(options.data_dir), []
    for number, run in enumerate(options.runs) if options.runs else ((seed, None) for seed in options.seeds):
        rows.append(finals(options, number, run, table))
        console.print(f"seed {number}: {rows[-1]['test']['cifar10']:.2f}  {rows[-1]['text']}")
    for dataset in DATASETS:
        console.print(f"{dataset}: {spread([row['test'][dataset] for row in rows])}")
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1))


def finals(options: argparse.Namespace, seed: int, run: Path | None, table: Nb201Table) -> dict:
    given = {"seed": seed, "data": {"directory": str(options.data_dir)}, "machine": {"threads": options.threads}}
    experiment = Experiment.resolve(merge(read_toml(options.recipe), given))
    search = build_search(experiment)
    count = experiment.settings["strategy"]["finalists"]
    named = by_chance(search.space, count, seed) if run is None else by_probabilities(search.space, count, run)
    start = time.perf_counter()
    if options.bound:
        winner, told = max(named, key=lambda one: table.query(one, "cifar10")), []
    else:
        winner, told = search._finals.winner(named)
    return {
        "seed": seed,
        "text": search.space.format(winner),
        "test": {name: table.query(winner, name) for name in DATASETS},
        "seconds": time.perf_counter() - start,
        "finalists": told,
    }


def by_chance(space: SearchSpace, count: int, seed: int) -> list[Architecture]:
    rng, found = random.Random(seed), []
    while len(found) < count:
        drawn = space.sample(rng)
        if NONE not in drawn.values() and drawn not in found:
            found.append(drawn)
    return found


def by_probabilities(space: SearchSpace, count: int, run: Path) -> list[Architecture]:
    scores = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["scores"]
    return space.neighbours(scores, count, keep_none=False)


if __name__ == "__main__":
    main()
