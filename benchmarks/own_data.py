"""Searches within a budget on data of a user's own: the default, its controls, and other strategies.

    python benchmarks/own_data.py run FOLDER --data-dir DIR [--rows gibbs,random] [--seeds 5]
    python benchmarks/own_data.py show FOLDER --csv docs/results/own-data.csv

`run` writes images of CIFAR-10 into `.npz` files below FOLDER, then searches one row and seed after the other, each in
a process of its own, on one thread and with a budget of processor time. Several `run` on one FOLDER share the work: a
search whose folder is there is left out, so remove the folder of one that was killed. `show` prints the tables.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from archloom.benchmarks.nb201 import Nb201Table
from archloom.data.cifar import cifar10
from archloom.execution.run_folder import RunFolder
from archloom.searches.result import read_result
from archloom.searches.spec import SearchSpec

FIRST_SEED = 69  # 60 to 66 were in view while the race was changed; 67 and 68 are measured
CONTROL = ("--set", "race.references=false")
UNIFORM = "--set", "race.proposals=random", "--set", "race.samples=0"  # samples of a strategy leave out `none`
NB201 = ("--space", "nb201", "--budget", "10m")


@dataclass(frozen=True)
class Row:
    """One setting of the table: how many images there are, and the arguments of the search."""

    images: int
    arguments: tuple[str, ...]
    seeds: int = 5


ROWS: Mapping[str, Row] = {
    "gibbs": Row(5_000, NB201),
    "random": Row(5_000, (*NB201, "--epochs", "0", *CONTROL, *UNIFORM)),
    "no_references": Row(5_000, (*NB201, *CONTROL)),
    "limit": Row(5_000, (*NB201, "--at-most", "multiply_adds=60e6")),
    "no_search": Row(5_000, (*NB201, "--epochs", "0")),
    "gdas": Row(5_000, (*NB201, "--strategy", "gdas"), 3),
    "darts": Row(5_000, (*NB201, "--strategy", "darts"), 3),
    "rsps": Row(5_000, (*NB201, "--strategy", "rsps"), 3),
    "evolution": Row(5_000, (*NB201, "--strategy", "regularized_evolution"), 3),
    "large": Row(25_000, ("--space", "nb201", "--budget", "15m")),
    "darts_space": Row(10_000, ("--space", "darts", "--budget", "15m"), 1),
    "proxylessnas_32": Row(10_000, ("--space", "proxylessnas_32", "--budget", "15m"), 1),
}


@dataclass(frozen=True)
class Found:
    """What one search returned, and the rank of what it derived before the race."""

    row: str
    seed: int
    minutes: float  # of processor time
    rank: int | None
    test_accuracy: float | None
    valid_accuracy: float | None
    derived_rank: int | None
    origin: str
    trainings: int
    multiply_adds: float
    text: str


def write_images(folder: Path, data_dir: Path, count: int) -> Path:
    """Write so many training images of CIFAR-10, chosen by a fixed permutation, and return their folder."""
    there = folder / f"images-{count}"
    if not (there / "images.npz").exists():
        there.mkdir(parents=True, exist_ok=True)
        train = cifar10(data_dir).train
        chosen = torch.from_numpy(np.sort(np.random.default_rng(0).permutation(len(train))[:count]))
        writing = there / f"{os.getpid()}.npz"
        np.savez(writing, images=train.fetch(chosen).numpy(), labels=train.labels[chosen].numpy())
        writing.rename(there / "images.npz")
    link = there / "nasbench201"
    if not link.is_symlink():
        link.symlink_to(data_dir.resolve() / "nasbench201")
    return there


def claim(folder: Path, rows: Sequence[str], seeds: int) -> Iterator[tuple[str, int, Path]]:
    """Yield searches that have not begun, seed by seed; making the folder claims one."""
    for number in range(seeds):
        for name in rows:
            place = folder / "runs" / f"{name}-{FIRST_SEED + number}"
            if number < ROWS[name].seeds and not place.exists():
                place.mkdir(parents=True)
                yield name, FIRST_SEED + number, place


def run(folder: Path, data_dir: Path, rows: Sequence[str], seeds: int) -> None:
    """Run every search that has not begun."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for name, seed, place in claim(folder, rows, seeds):
        data = write_images(folder, data_dir, ROWS[name].images)
        command = [sys.executable, "-m", "archloom", "search", "--quiet", "--data", "npz", "--data-dir", str(data)]
        command += [*ROWS[name].arguments, "--set", "data.path=images.npz", "--set", "search.budget_clock=cpu"]
        command += ["--threads", "1", "--seed", str(seed), "--out", str(place)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with place.with_suffix(".log").open("w") as log:
            done = subprocess.run(command, env=environment, stdout=log, stderr=log, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        place.with_suffix(".seconds").write_text(f"{seconds:.1f}\n")
        print(f"{name} {seed}: exit {done.returncode}, {seconds:.0f} s of processor time", flush=True)


def read_found(folder: Path) -> list[Found]:
    """Return what the finished searches found, by row and seed."""
    found = [
        _read_one(place) for place in sorted((folder / "runs").iterdir()) if (place / "architecture.json").exists()
    ]
    order = list(ROWS)
    return sorted(found, key=lambda one: (order.index(one.row), one.seed))


def _read_one(place: Path) -> Found:
    run_folder = RunFolder.open(place)
    result = read_result(run_folder, SearchSpec.resolve(run_folder.config).build_space())
    assert result is not None
    entry, race = result.table_entry, result.race
    return Found(
        row=place.name.rpartition("-")[0],
        seed=result.seed,
        minutes=round(float(place.with_suffix(".seconds").read_text()) / 60, 2),
        rank=entry and entry.rank,
        test_accuracy=entry and round(entry.test, 2),
        valid_accuracy=entry and round(entry.valid, 2),
        derived_rank=entry and result.derived and _table(place).look_up(result.derived, entry.dataset).rank,
        origin=race.winner_origin if race else "",
        trainings=race.trained if race else 0,
        multiply_adds=result.cost.multiply_adds,
        text=result.text,
    )


def _table(place: Path) -> Nb201Table:
    table = Nb201Table.find(place.parent.parent / "images-5000")
    assert table is not None
    return table


def show(folder: Path, path: Path | None) -> None:
    """Print a table of all searches and one of the rows; write all searches to a CSV file."""
    found, console = read_found(folder), Console()
    names = [field.name for field in fields(Found)]
    if path is not None:
        with path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([names, *map(astuple, found)])
    each = Table(*names, title="searches")
    for one in found:
        each.add_row(*map(str, astuple(one)))
    rows = Table("row", "seeds", "median rank", "worst rank", "mean test accuracy", "minutes", title="rows")
    for name in dict.fromkeys(one.row for one in found):
        rows.add_row(name, *_summarize([one for one in found if one.row == name]))
    console.print(each, rows)


def _summarize(found: Sequence[Found]) -> list[str]:
    ranks = [one.rank for one in found if one.rank is not None]
    accuracies = [one.test_accuracy for one in found if one.test_accuracy is not None]
    minutes = f"{statistics.fmean(one.minutes for one in found):.1f}"
    if not ranks:
        return [str(len(found)), "", "", "", minutes]
    mean = f"{statistics.fmean(accuracies):.2f}"
    return [str(len(found)), f"{statistics.median(ranks):,.0f}", f"{max(ranks):,}", mean, minutes]


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "show"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data-dir", type=Path, help="the folder with cifar-10-batches-py and nasbench201")
    parser.add_argument("--rows", default=",".join(ROWS), help=f"some of {', '.join(ROWS)}")
    parser.add_argument("--seeds", type=int, default=5, help="at most so many of each row")
    parser.add_argument("--csv", type=Path, help="write all searches to this file")
    options = parser.parse_args()
    if unknown := [name for name in options.rows.split(",") if name not in ROWS]:
        parser.error(f"unknown row '{unknown[0]}'; expected some of {', '.join(ROWS)}")
    if options.what == "show":
        show(options.folder, options.csv)
    elif options.data_dir is None:
        parser.error("--data-dir must name the folder with cifar-10-batches-py")
    else:
        run(options.folder.resolve(), options.data_dir, options.rows.split(","), options.seeds)


if __name__ == "__main__":
    main()
