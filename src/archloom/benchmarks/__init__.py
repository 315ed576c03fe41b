"""Tables of known scores by name. A new one is a row here."""

from __future__ import annotations

from pathlib import Path

from archloom.benchmarks.base import Benchmark, TableEntry
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


def find_benchmark(space: SearchSpace, dataset: str, directory: Path | None = None) -> tuple[Benchmark, str] | None:
    """Return the table that covers a space and its data set to use for the one named; None if there is none.

    A table whose file is absent counts as none; a file that is there but damaged raises a BenchmarkError.
    """
    for entry in BENCHMARKS.values():
        kind: type[Benchmark] = entry.load()
        stand_in = kind.dataset_for(dataset)
        if stand_in is None or not kind.knows(space):
            continue
        table = kind.find(directory)
        if table is not None:
            return table, stand_in
    return None


__all__ = ["BENCHMARKS", "Benchmark", "TableEntry", "find_benchmark"]
