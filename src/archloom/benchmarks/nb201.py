"""NAS-Bench-201 as one small file: all 15,625 cells trained on three data sets (Dong & Yang, 2020).

The published download takes gigabytes and minutes to load; what a search needs of it are two dozen columns, which are
read one by one when first asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from archloom.benchmarks.archive import array_names, read_array
from archloom.benchmarks.base import Benchmark, Column
from archloom.core.errors import BenchmarkError, suggestion
from archloom.core.files import FOLDER_VARIABLE, data_folder
from archloom.spaces import Architecture, Nb201

FILE_NAME = "nasbench201_compact.npz"
LATENCY_FILE_NAME = "nasbench201_latency_help.npz"

Table = TypeVar("Table", bound="Nb201Table")

SPACE = Nb201()
DATASETS = ("cifar10", "cifar100", "imagenet16")
ACCURACIES = ("test", "valid")
COSTS = ("params", "flops_M")
EPOCHS = (200, 12)


def column_name(dataset: str, metric: str, epochs: int | None = None) -> str:
    """Return the name of a column in the file: `cifar10_test`, `cifar10_test_12ep`, `cifar10_params`."""
    return f"{dataset}_{metric}_12ep" if metric in ACCURACIES and epochs == 12 else f"{dataset}_{metric}"


COLUMN_NAMES = tuple(
    dict.fromkeys(
        column_name(dataset, metric, epochs)
        for dataset in DATASETS
        for metric in ACCURACIES + COSTS
        for epochs in EPOCHS
    )
)


class Nb201Table(Benchmark):
    """The scores of all 15,625 cells, or of those that a partial conversion holds."""

    name: ClassVar[str] = "nb201"
    space: ClassVar[Nb201] = SPACE
    datasets: ClassVar[tuple[str, ...]] = DATASETS
    metrics: ClassVar[tuple[str, ...]] = ACCURACIES + COSTS
    epochs: ClassVar[tuple[int, ...]] = EPOCHS

    def __init__(self, path: Path) -> None:
        self.path = path
        self._columns: dict[tuple[Path, str], Column] = {}
        missing = [name for name in ("arch", "ops", *COLUMN_NAMES) if name not in array_names(path)]
        if missing:
            raise BenchmarkError(f"{path} is not an nb201 table: it has no array '{missing[0]}'")

    @classmethod
    def open(cls, directory: Path | None = None) -> Self:
        """Return the table in a data folder, in the file given, or in the folder that ARCHLOOM_DATA names."""
        table = cls.find(directory)
        if table is None:
            places = ", ".join(str(path) for path in _places(directory)) or f"nowhere, as {FOLDER_VARIABLE} is not set"
            raise BenchmarkError(
                f"no nb201 table found (looked for {places}); give a data folder that holds {FILE_NAME}, or make that "
                "file from an unpacked NATS-Bench download (NATS-tss-v1_0-3ffb9-simple): archloom benchmark convert"
            )
        return table

    @classmethod
    def find(cls, directory: Path | None) -> Self | None:
        """Return the table of the first place that has its file, or None."""
        path = next((path for path in _places(directory) if path.is_file()), None)
        return None if path is None else _open_once(cls, path, path.stat().st_mtime_ns)

    @classmethod
    def dataset_for(cls, dataset: str) -> str:
        """Return the data set itself, or CIFAR-10 for an unknown one: good cells transfer from there."""
        return dataset if dataset in DATASETS else "cifar10"

    # --- columns and rows

    def column(self, dataset: str, *, metric: str = "test", epochs: int | None = None) -> Column:
        """Return a metric of every row, after so many epochs of training."""
        self._check_names(dataset, metric)
        return self.named_column(column_name(dataset, metric, self._training_length(epochs)))

    def named_column(self, name: str) -> Column:
        """Return a column by its name in the file."""
        return self._read_once(self.path, name)

    def _read_once(self, path: Path, name: str) -> Column:
        """Return an array of the table or of a file beside it, whose rows are the same."""
        if (path, name) not in self._columns:
            column, count = read_array(path, name), len(self._codes)
            if column.shape != (count,) or column.dtype.kind not in "fiu" or not np.isfinite(column).all():
                raise BenchmarkError(
                    f"{path}: array '{name}' must hold a finite number for each of {count:,} cells; it is damaged, or "
                    "belongs to another table"
                )
            self._columns[path, name] = column
        return self._columns[path, name]

    @cached_property
    def _codes(self) -> NDArray[np.int64]:
        """Return for every row the place of its cell in the space."""
        return codes_of(read_array(self.path, "ops"), source=self.path)

    @cached_property
    def _rows(self) -> NDArray[np.int64]:
        """Return for every place in the space the row of its cell, or -1."""
        rows = np.full(SPACE.cardinality, -1, dtype=np.int64)
        rows[self._codes] = np.arange(len(self._codes))
        return rows

    def row(self, architecture: Mapping[str, str]) -> int:
        """Return the row of an architecture; raise an error if the table has none."""
        row = int(self._rows[self._code(architecture)])
        if row < 0:
            text = SPACE.format(SPACE.check(architecture))
            raise BenchmarkError(f"{self.path} holds {len(self._codes):,} of {SPACE.cardinality:,} cells, not {text}")
        return row

    def architecture(self, row: int) -> Architecture:
        """Return the architecture of a row."""
        return self._decode(int(self._codes[row]))

    # --- files next to the table

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """Return the names of the devices whose latencies are known."""
        path = self.path.with_name(LATENCY_FILE_NAME)
        return array_names(path) if path.is_file() else ()

    def latencies(self, device: str) -> Column:
        """Return milliseconds for one forward pass on a device, from the latency file beside the table."""
        path = self.path.with_name(LATENCY_FILE_NAME)
        if not self.devices:
            raise BenchmarkError(f"no latencies beside the nb201 table: {path} does not exist")
        if device not in self.devices:
            raise BenchmarkError(f"{path} has no device '{device}'{suggestion(device, self.devices)}")
        return self._read_once(path, device)


@lru_cache(maxsize=8)
def _open_once(kind: type[Table], path: Path, modified: int) -> Table:
    """Open a table once per process, and again when its file changes."""
    return kind(path)


def codes_of(operations: NDArray[Any], *, source: Path) -> NDArray[np.int64]:
    """Return the place in the space of every row of operation indices; each cell may occur once."""
    radix, edges = len(SPACE.operations), len(SPACE.edges)
    if operations.ndim != 2 or operations.shape[1] != edges or operations.dtype.kind not in "iu" or not len(operations):
        raise BenchmarkError(f"{source} is not an nb201 table: 'ops' must be whole numbers in rows of {edges}")
    if operations.min() < 0 or operations.max() >= radix:
        raise BenchmarkError(f"{source} is damaged: 'ops' must lie between 0 and {radix - 1}")
    codes = operations.astype(np.int64) @ radix ** np.arange(edges - 1, -1, -1, dtype=np.int64)
    if len(np.unique(codes)) != len(codes):
        raise BenchmarkError(f"{source} is damaged: 'ops' lists a cell twice")
    return np.asarray(codes, dtype=np.int64)


def _places(directory: Path | None) -> Iterator[Path]:
    """Return where the table may lie: the file itself, or in a data folder or its usual subfolders."""
    if directory is not None and directory.suffix == ".npz":
        yield directory
        return
    for folder in (directory, data_folder(None)):
        if folder is not None:
            yield from (folder / below / FILE_NAME for below in ("", "nb201", "nasbench201"))
