"""Time a step of some recipes in the same rounds of one process, by processor time: other work disturbs little.

    python benchmarks/recipe_steps.py stability/s2_amended stability/s2_darts_second --data-dir DIR [--rounds 4]

One thread. The first step of each is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from archloom.core.recipes import find_recipe
from archloom.core.settings import merge, read_toml
from archloom.data.source import ImageData
from archloom.searches.build import build_search
from archloom.searches.loop import SearchLoop
from archloom.searches.spec import SearchSpec


def time_steps(
    searches: dict[str, SearchLoop], *, rounds: int, clock: Callable[[], float] = time.process_time
) -> dict[str, list[float]]:
    """Seconds of `rounds` steps of each search, which take turns."""
    for search in searches.values():
        search.advance()
    seconds: dict[str, list[float]] = {name: [] for name in searches}
    for _ in range(rounds):
        for name, search in searches.items():
            start = clock()
            search.advance()
            seconds[name].append(clock() - start)
    return seconds


def build_searches(recipes: Sequence[str], folder: Path | None) -> dict[str, SearchLoop]:
    """The searches of recipes, all on the data of the first."""
    here = {
        "machine": {"torch_threads": 1, "loader_threads": 0},
        "data": {} if folder is None else {"directory": str(folder)},
    }
    experiments = {name: SearchSpec.resolve(merge(read_toml(find_recipe(name)), here)) for name in recipes}
    data: ImageData = experiments[recipes[0]].load_data()
    return {name: build_search(experiment, data=data) for name, experiment in experiments.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args(arguments)
    seconds = time_steps(build_searches(options.recipes, options.data_dir), rounds=options.rounds)
    first = statistics.median(seconds[options.recipes[0]])
    for name, found in seconds.items():
        middle = statistics.median(found)
        print(f"{name}: {middle:.2f} s ({min(found):.2f} to {max(found):.2f}), {middle / first:.2f} times the first")


if __name__ == "__main__":
    main()
