"""A benchmark table of one's own as a CSV file: a row per architecture, its text form and its scores.

Columns are `architecture`, `test` and, if there are any, `valid`; accuracies are in percent. A table may know only a
part of its space, and only test scores: a search may then be looked up, but not guided by it.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import numpy as np

from archloom.benchmarks.base import Benchmark, Column
from archloom.core.errors import BenchmarkError, ParseError, excerpt
from archloom.spaces import Architecture, SearchSpace

KEY, TEST, VALID = "architecture", "test", "valid"
LARGEST_FIELD = 2**20  # characters


class CsvTable(Benchmark):
    """The scores in a CSV file, for the space and the data of the search that names it."""

    def __init__(self, path: Path, space: SearchSpace, dataset: str) -> None:
        self.name, self.space, self.datasets = path.stem, space, (dataset,)  # type: ignore[misc]  # of this table alone
        self.source = path
        self._scores: dict[str, list[float]] = {}
        self._rows: dict[Architecture, int] = {}
        self._read()
        self.metrics = tuple(self._scores)  # type: ignore[misc]  # likewise
        self._architectures = tuple(self._rows)

    @classmethod
    def find(cls, directory: Path | None) -> Self | None:
        """Return None: only a setting names such a table."""
        return None

    @property
    def epochs(self) -> tuple[int, ...]:
        """Return no training lengths: the file does not say."""
        return ()

    def column(self, dataset: str, *, metric: str = TEST, epochs: int | None = None) -> Column:
        """Return one metric of every architecture in the file."""
        self._check_names(dataset, metric)
        self._training_length(epochs)
        return np.asarray(self._scores[metric])

    def row(self, architecture: Mapping[str, str]) -> int:
        """Return the row of an architecture; a BenchmarkError where the file lacks it."""
        checked = self.space.check(architecture)
        found = self._rows.get(checked)
        if found is None:
            raise BenchmarkError(f"'{self.source}' has no row for {excerpt(self.space.format(checked))}")
        return found

    def architecture(self, row: int) -> Architecture:
        """Return the architecture of a row."""
        return self._architectures[row]

    def _read(self) -> None:
        try:
            with self.source.open(encoding="utf-8-sig", newline="") as file:
                csv.field_size_limit(LARGEST_FIELD)
                reader = csv.DictReader(file)
                self._check_columns(reader.fieldnames or ())
                for row in reader:
                    self._add(row, reader.line_num)
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise BenchmarkError(f"'{self.source}' is not a readable CSV file: {error}") from error
        if not self._rows:
            raise BenchmarkError(f"'{self.source}' must have a row per architecture, got none")

    def _check_columns(self, names: object) -> None:
        found = [str(name) for name in names]  # type: ignore[attr-defined]  # a sequence
        if KEY not in found or TEST not in found:
            listed = ", ".join(found) or "none"
            raise BenchmarkError(f"'{self.source}' must have the columns {KEY} and {TEST} (and {VALID}), got {listed}")
        self._scores = {name: [] for name in (TEST, VALID) if name in found}

    def _add(self, row: Mapping[str, str | None], line: int) -> None:
        try:
            architecture = self.space.parse(str(row[KEY]))
        except ParseError as error:
            raise BenchmarkError(f"line {line} of '{self.source}': {error}") from error
        if architecture in self._rows:
            raise BenchmarkError(f"line {line} of '{self.source}' repeats the architecture {excerpt(str(row[KEY]))}")
        self._rows[architecture] = len(self._rows)
        for name, values in self._scores.items():
            values.append(self._score(row[name], name, line))

    def _score(self, text: str | None, name: str, line: int) -> float:
        try:
            value = float(str(text))
        except ValueError:
            value = math.nan
        if not 0 <= value <= 100:
            raise BenchmarkError(f"line {line} of '{self.source}': {name} must be a percentage, got '{text}'")
        return value
