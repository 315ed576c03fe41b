"""Latencies that a user measured: a CSV file of architectures (their text, or their row in the table) and ms."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from archloom.benchmarks.base import Benchmark
from archloom.core.errors import ArchloomError, BenchmarkError, one_line
from archloom.core.files import reading


def read_latencies(path: Path, table: Benchmark, *, dataset: str) -> NDArray[np.float64]:
    """Return milliseconds by the rows of the table, NaN for rows that the file does not name."""
    found = np.full(len(table.column(dataset)), math.nan)
    for number, architecture, latency in _lines(path):
        row = _row(architecture, table, count=len(found), place=f"{path}, line {number}")
        if not math.isnan(found[row]):
            raise BenchmarkError(f"{path}, line {number}: {architecture} is there a second time; keep one of them")
        found[row] = latency
    if np.isnan(found).all():
        raise BenchmarkError(
            f"{path} holds no latencies: a line is an architecture (text or row), a comma, milliseconds"
        )
    return found


def _lines(path: Path) -> Iterator[tuple[int, str, float]]:
    """Iterate over (line number, architecture, milliseconds); a first line without a number is a heading."""
    with reading(path), path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, skipinitialspace=True)
        try:
            for fields in lines:
                if not any(field.strip() for field in fields):
                    continue
                latency = _milliseconds(fields)
                if latency is not None:
                    yield lines.line_num, fields[0].strip(), latency
                elif lines.line_num > 1:
                    raise BenchmarkError(
                        f"{path}, line {lines.line_num}: must be an architecture, a comma and milliseconds above 0, "
                        f"got {one_line(','.join(fields))!r}"
                    )
        except (UnicodeDecodeError, csv.Error) as error:
            raise BenchmarkError(f"{path} is no CSV file in UTF-8: {one_line(error)}") from error


def _milliseconds(fields: list[str]) -> float | None:
    """Return the second of two fields, if it is a time."""
    try:
        latency = float(fields[1]) if len(fields) == 2 else math.nan
    except ValueError:
        return None
    return latency if math.isfinite(latency) and latency > 0 else None


def _row(architecture: str, table: Benchmark, *, count: int, place: str) -> int:
    if architecture.isascii() and architecture.isdecimal() and len(architecture) < 10:
        if int(architecture) < count:
            return int(architecture)
        raise BenchmarkError(f"{place}: rows of the {table.name} table lie in 0..{count - 1}, got {architecture}")
    try:
        return table.row(table.space.parse(architecture))
    except ArchloomError as error:
        raise BenchmarkError(f"{place}: {error}") from error
