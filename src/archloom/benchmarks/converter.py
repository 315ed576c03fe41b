"""Make the compact NAS-Bench-201 table from a user's own download, or check and copy one that exists.

The download is a folder of 15,625 records with every epoch of every run; a search needs two dozen numbers of each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archloom.benchmarks.archive import read_array, write_arrays
from archloom.benchmarks.nb201 import COLUMN_NAMES, FILE_NAME, SPACE, Nb201Table, codes_of
from archloom.benchmarks.records import read_record
from archloom.core.errors import ArchloomError, BenchmarkError

Progress = Callable[[int, int], None]
"""Called with how many architectures are done, and of how many."""

_RECORD_NAME = re.compile(r"NATS-tss-v1_0-[0-9a-f]+-simple_(\d{6})\.pickle\.pbz2")


def convert(source: Path, destination: Path, *, partial: bool = False, progress: Progress | None = None) -> Path:
    """Write the compact table and return its path.

    `source` is the unpacked folder of NATS-Bench records, or a compact table to be checked and copied. `destination`
    is the file to write (`*.npz`), or the folder to write it into. With `partial`, architectures may be missing.
    """
    if source.is_dir():
        arrays = _from_records(_records(source), partial=partial, source=source, progress=progress)
    elif source.suffix == ".npz" and source.is_file():
        arrays = _from_table(source, partial=partial)
    elif source.exists():
        raise BenchmarkError(f"{source} must be a folder of NATS-Bench records (unpack it first) or a compact .npz")
    else:
        raise BenchmarkError(f"{source} does not exist")
    target = destination if destination.suffix == ".npz" else destination / FILE_NAME
    write_arrays(target, arrays)
    return target


# --- from the published records


def _records(folder: Path) -> dict[int, Path]:
    """Return the records of a folder by their number in the official order."""
    matches = ((path, _RECORD_NAME.fullmatch(path.name)) for path in sorted(folder.iterdir()))
    found = {int(match[1]): path for path, match in matches if match is not None}
    if not found:
        raise BenchmarkError(f"{folder} holds no record like NATS-tss-v1_0-3ffb9-simple_000000.pickle.pbz2")
    return found


def _from_records(
    paths: Mapping[int, Path], *, partial: bool, source: Path, progress: Progress | None
) -> dict[str, NDArray[Any]]:
    _check_count(len(paths), partial=partial, source=source)
    texts: list[str] = []
    columns: dict[str, list[float]] = {name: [] for name in COLUMN_NAMES}
    for done, (index, path) in enumerate(sorted(paths.items()), start=1):
        record = read_record(path)
        if record.index != index:
            raise BenchmarkError(f"{path} must be the record of architecture {index}, it says {record.index}")
        texts.append(record.text)
        for name, values in columns.items():
            values.append(record.columns[name])
        if progress is not None:
            progress(done, len(paths))
    arrays = {name: np.asarray(values, dtype=_dtype(name)) for name, values in columns.items()}
    return _with_cells(texts, arrays, source=source)


def _with_cells(texts: list[str], arrays: dict[str, NDArray[Any]], *, source: Path) -> dict[str, NDArray[Any]]:
    operations = _operations(texts, source=source)
    codes_of(operations, source=source)  # refuses a cell that occurs twice
    return {"arch": np.asarray(texts), **arrays, "ops": operations}


def _operations(texts: list[str], *, source: Path) -> NDArray[np.int8]:
    """Return the operation indices that NB201 strings stand for."""
    try:
        cells = [SPACE.parse(text) for text in texts]
    except ArchloomError as error:
        raise BenchmarkError(f"{source} is damaged: {error}") from error
    rows = [[decision.index(cell[decision.name]) for decision in SPACE.decisions] for cell in cells]
    return np.asarray(rows, dtype=np.int8)


def _dtype(column: str) -> type[np.number[Any]]:
    if column.endswith("_params"):
        return np.int64
    return np.float64 if column.endswith("_flops_M") else np.float32


# --- from a compact table


def _from_table(path: Path, *, partial: bool) -> dict[str, NDArray[Any]]:
    table = Nb201Table(path)
    texts = [str(text) for text in read_array(path, "arch")]
    if not np.array_equal(_operations(texts, source=path), read_array(path, "ops")):
        raise BenchmarkError(f"{path} is damaged: 'arch' and 'ops' disagree")
    _check_count(len(texts), partial=partial, source=path)
    return _with_cells(texts, {name: table.named_column(name) for name in COLUMN_NAMES}, source=path)


def _check_count(count: int, *, partial: bool, source: Path) -> None:
    missing = SPACE.cardinality - count
    if missing > 0 and not partial:
        raise BenchmarkError(
            f"{source} lacks {missing:,} of {SPACE.cardinality:,} architectures; allow a partial table or get the rest"
        )
