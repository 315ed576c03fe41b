"""Tables of known scores by name. A new one is a row here."""

from __future__ import annotations

from pathlib import Path

from archloom.benchmarks.base import Benchmark, TableEntry
from archloom.benchmarks.csv_table import CsvTable
from archloom.core.errors import BenchmarkError
from archloom.core.files import expand
from archloom.core.registry import Catalogue, Entry
from archloom.spaces import SearchSpace

BENCHMARKS = Catalogue(
    "benchmark",
    {
        "nb201": Entry("archloom.benchmarks.nb201:Nb201Table"),
        "strokes": Entry("archloom.benchmarks.strokes:StrokesTable"),
        "digits": Entry("archloom.benchmarks.digits:DigitsTable"),
    },
    makes="archloom.benchmarks.base:Benchmark",
)


def find_benchmark(
    space: SearchSpace, dataset: str, directory: Path | None = None, *, named: str | None = None
) -> tuple[Benchmark, str] | None:
    """Return the table that covers a space and its data set to use for the one named; None if there is none.

    A table whose file is absent counts as none; a file that is there but damaged raises a BenchmarkError. A table that
    a user names must be there and cover the space.
    """
    if named is not None:
        return open_benchmark(named, space, dataset, directory)
    for entry in BENCHMARKS.values():
        kind: type[Benchmark] = entry.load()
        stand_in = kind.dataset_for(dataset)
        if stand_in is None or not kind.knows(space):
            continue
        table = kind.find(directory)
        if table is not None:
            return table, stand_in
    return None


def is_file(named: str) -> bool:
    """Return whether the table that a user names is a CSV file."""
    return named.endswith(".csv")


def open_benchmark(
    named: str, space: SearchSpace, dataset: str, directory: Path | None = None
) -> tuple[Benchmark, str]:
    """Return the table that a user names, and its data set to use: a CSV file, a name, or `package.module:Class`.

    Raises:
        BenchmarkError: If it is missing, or does not cover the space.
    """
    if is_file(named):
        return CsvTable(expand(named), space, dataset), dataset
    kind: type[Benchmark] = BENCHMARKS.find(named).load()
    if not kind.knows(space):
        raise BenchmarkError(f"search.table '{named}' must cover the space, but has other decisions or options")
    table = kind.find(directory)
    if table is None:
        raise BenchmarkError(f"search.table '{named}' was not found in the data folder {directory or '(none is set)'}")
    stand_in = kind.dataset_for(dataset) or (table.datasets[0] if len(table.datasets) == 1 else None)
    if stand_in is None:
        raise BenchmarkError(f"search.table '{named}' has no data set '{dataset}'; known: {', '.join(table.datasets)}")
    return table, stand_in


__all__ = ["BENCHMARKS", "Benchmark", "TableEntry", "find_benchmark", "is_file", "open_benchmark"]
