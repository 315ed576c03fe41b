"""Train the winner of a search, the references and random architectures alike, longer than the race did.

    python benchmarks/equal_trainings.py RUN [--longer 3] [--seeds 2] [--random 3]

Networks are those of the finalist race. They learn from the same images with fresh seeds, so many times as long as the
longest training of the race, and are evaluated on test images, which the search never read. The random architectures
are those that took part in the race. Printed are accuracies, their mean, and the difference from the winner.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from archloom.data.loader import Loader
from archloom.data.source import ImageData
from archloom.execution.run_folder import RunFolder
from archloom.searches.build import SearchBuilder
from archloom.searches.loaders import EVALUATION_BATCH
from archloom.searches.race_proposals import RANDOM, Entrant
from archloom.searches.result import SearchResult, read_result
from archloom.searches.spec import SearchSpec

FRESH = 100  # the number of the first seed: the race counts its own from 0
WINNER = "winner"


def list_entrants(builder: SearchBuilder, result: SearchResult, randoms: int) -> Iterator[Entrant]:
    """Yield the winner, the references, and random contestants of the race."""
    yield Entrant(result.architecture, WINNER)
    yield from (Entrant(one, name) for name, one in builder.references().items())
    sampled = dict.fromkeys(record.architecture for record in result.finalists if record.origin == RANDOM)
    yield from (Entrant(one, f"{RANDOM} {number}") for number, one in enumerate(list(sampled)[:randoms], start=1))


def load_test(data: ImageData) -> Loader:
    """Return the test images as they are."""
    assert data.test is not None, "the data need a test part"
    every = torch.arange(len(data.test))
    augment = data.augment.for_evaluation()
    return Loader(
        data.test, every, batch_size=EVALUATION_BATCH, mean=data.mean, std=data.std, augment=augment, seed=0,
        drop_last=False,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--longer", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--random", type=int, default=3)
    options = parser.parse_args()
    folder = RunFolder.open(options.run)
    spec = SearchSpec.resolve(folder.config)
    torch.set_num_threads(spec.machine.torch_threads or 1)
    data = spec.load_data()
    assert isinstance(data, ImageData), "texts have no test images"
    result = read_result(folder, spec.build_space())
    assert result is not None and result.finalists, "the search has not finished, or had no race"
    builder = SearchBuilder(spec, data)
    training, steps = (
        builder.short_training(load_test(data)),
        options.longer * max(one.steps for one in result.finalists),
    )
    entrants = list(list_entrants(builder, result, options.random))
    found: dict[str, list[float]] = {}
    for entrant in track(entrants, f"{steps} steps each"):
        records = [training(entrant, steps, FRESH + number, lambda: False) for number in range(options.seeds)]
        found[entrant.origin] = [100 * record.valid_score for record in records]
    table = Table("network", "accuracies, %", "mean", "winner minus this", title=f"{options.run}: {steps} steps")
    for name, values in found.items():
        mean = statistics.fmean(values)
        gap = "" if name == WINNER else f"{statistics.fmean(found[WINNER]) - mean:+.2f}"
        table.add_row(name, " ".join(f"{value:.2f}" for value in values), f"{mean:.2f}", gap)
    Console().print(table)


if __name__ == "__main__":
    main()
