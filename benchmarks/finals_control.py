"""Control of the finalist race without a posterior: random finalists, or those of another search.

    python benchmarks/finals_control.py recipes/cifar10/gibbs.toml --seeds 0-4 --data-dir DIR --out runs/random.json
    python benchmarks/finals_control.py recipes/cifar10/gibbs.toml --runs runs/darts-0 runs/darts-1 --data-dir DIR

The finalist race is that of the recipe (how many changes, for how long, how wide). It starts from an architecture
sampled without `none`; with `--runs`, from what the last checkpoint of a run favours without `none`, with
its seed: for a run of that recipe without a race this is what the search with a race would have found.
With `--bound` nothing is trained: the result is the best of the finalists by the table.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

from rich.console import Console

from archloom.benchmarks.nb201 import Nb201Table
from archloom.core.settings import merge, read_toml
from archloom.execution.run_folder import RunFolder
from archloom.searches.build import build_search
from archloom.searches.spec import SearchSpec
from archloom.spaces import NONE, Architecture, SearchSpace
from archloom.strategies.base import OneShot
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
    runs = [(seed_of(run), run) for run in options.runs] or [(seed, None) for seed in options.seeds]
    for seed, run in runs:
        rows.append(run_race(options, seed, run, table))
        console.print(
            f"seed {seed}: {rows[-1]['test']['cifar10']:.2f}  {rows[-1]['text']}  {rows[-1]['seconds']:.0f} s"
        )
    for dataset in DATASETS:
        console.print(f"{dataset}: {spread([row['test'][dataset] for row in rows])}")
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1))


def run_race(options: argparse.Namespace, seed: int, run: Path | None, table: Nb201Table) -> dict:
    given = {"seed": seed, "data": {"directory": str(options.data_dir)}, "machine": {"torch_threads": options.threads}}
    experiment = SearchSpec.resolve(merge(read_toml(options.recipe), given))
    search = build_search(experiment)
    count = experiment.strategy.settings["finalists"]
    if run is None:
        named = sample_finalists(search.space, count, seed)
    else:
        named = search.space.neighbours(strategy_of(run, given).probabilities(), count, keep_none=False)
    start = time.perf_counter()
    if options.bound:
        winner, scores = max(named, key=lambda one: table.query(one, "cifar10")), []
    else:
        winner, scores = search._race.run(named)
    return {
        "seed": seed,
        "text": search.space.format(winner),
        "test": {name: table.query(winner, name) for name in DATASETS},
        "seconds": time.perf_counter() - start,
        "finalists": scores,
    }


def seed_of(run: Path) -> int:
    return int(read_toml(run / "config.toml")["seed"])


def strategy_of(run: Path, given: dict) -> OneShot:
    """The strategy of a run as its last checkpoint has it."""
    directory = RunFolder.open(run)
    search = build_search(SearchSpec.resolve(merge(directory.config, given)))
    search.load_state_dict(directory.checkpoints.load_latest(warn=print))
    return search.strategy


def sample_finalists(space: SearchSpace, count: int, seed: int) -> list[Architecture]:
    """Return an architecture sampled without `none`, and its neighbours in random order."""
    rng = random.Random(seed)
    scores = {d.name: [0.0 if option == NONE else rng.random() for option in d.options] for d in space.decisions}
    return space.neighbours(scores, count, keep_none=False)


if __name__ == "__main__":
    main()
