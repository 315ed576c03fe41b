"""All 125 three-node cells trained on scikit-learn's digits: a table that ships with the package.

It shows the regret of a search, and lets tests check one, with no download and in seconds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from archloom.benchmarks.base import DIGITS_KEPT, Benchmark, Column
from archloom.core.errors import BenchmarkError
from archloom.core.json_object import JsonObject
from archloom.core.settings import Settings
from archloom.spaces import SPACES, Architecture, Nb201

FILE_NAME = "digits_nb201_mini.json"


def _mini_space() -> Nb201:
    """Return the space of the table, as the catalogue has it."""
    return Nb201(**SPACES["nb201_mini"].settings)


class DigitsTable(Benchmark):
    """Test and validation accuracy of every cell, over several seeds."""

    name: ClassVar[str] = "digits"
    space: ClassVar[Nb201] = _mini_space()
    datasets: ClassVar[tuple[str, ...]] = ("digits",)

    def __init__(self, path: Path | None = None) -> None:
        self.source = str(path) if path is not None else f"the packaged {FILE_NAME}"
        content = self._read(path)
        self.protocol: dict[str, Any] = dict(content["protocol"])
        self.seeds: tuple[int, ...] = tuple(content["seeds"])
        self._scores = {metric: self._check_scores(metric, content[metric]) for metric in self.metrics}

    @classmethod
    def find(cls, directory: Path | None) -> Self | None:
        """Return the packaged table; the data folder is not used."""
        return cls() if resources.files("archloom.benchmarks").joinpath(FILE_NAME).is_file() else None

    @property
    def epochs(self) -> tuple[int, ...]:
        """Return the training lengths that the table has."""
        epochs = self.protocol.get("epochs")
        return (epochs,) if isinstance(epochs, int) else ()

    def column(self, dataset: str, *, metric: str = "test", epochs: int | None = None) -> Column:
        """Return the mean over seeds, in percent."""
        self._check_names(dataset, metric)
        self._training_length(epochs)
        return np.asarray(self._scores[metric].mean(axis=1))

    def spread(self, architecture: Mapping[str, str], *, metric: str = "test") -> float:
        """Return the sample standard deviation over seeds, in points: smaller differences are noise."""
        self._check_names("digits", metric)
        scores = self._scores[metric][self.row(architecture)]
        return round(float(scores.std(ddof=1)), DIGITS_KEPT) if len(scores) > 1 else 0.0

    def row(self, architecture: Mapping[str, str]) -> int:
        """Return the row of an architecture."""
        return self._code(architecture)

    def architecture(self, row: int) -> Architecture:
        """Return the architecture of a row."""
        return self._decode(row)

    # --- reading

    def _read(self, path: Path | None) -> JsonObject:
        file = resources.files("archloom.benchmarks").joinpath(FILE_NAME) if path is None else path
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise BenchmarkError(f"no digits table: {self.source} does not exist") from error
        except (OSError, ValueError, RecursionError) as error:
            raise BenchmarkError(f"{self.source} is damaged: {error}") from error
        wanted = {"space": dict, "protocol": dict, "seeds": list, "test": list, "valid": list}
        for name, kind in wanted.items():
            if not isinstance(content, dict) or not isinstance(content.get(name), kind):
                raise BenchmarkError(f"{self.source} is not a digits table: '{name}' must be a {kind.__name__}")
        if not content["seeds"] or not all(type(seed) is int for seed in content["seeds"]):
            raise BenchmarkError(f"{self.source} is damaged: 'seeds' must be whole numbers, got {content['seeds']}")
        self._check_space(content["space"])
        return content  # type: ignore[no-any-return]  # its shape was checked

    def _check_space(self, settings: Settings) -> None:
        """Refuse a table of another space: its rows would be misread."""
        nodes, operations = settings.get("nodes"), settings.get("operations", list(self.space.operations))
        if nodes != self.space.nodes or operations != list(self.space.operations):
            raise BenchmarkError(
                f"{self.source} must be a table of {self.space.nodes} nodes and the operations "
                f"{', '.join(self.space.operations)}, got {nodes} nodes and {operations}"
            )

    def _check_scores(self, metric: str, rows: list[Any]) -> NDArray[np.float64]:
        wanted = self.space.cardinality
        if len(rows) != wanted:
            raise BenchmarkError(f"{self.source} is damaged: '{metric}' must have {wanted} rows, got {len(rows)}")
        for number, row in enumerate(rows):
            if not isinstance(row, list) or len(row) != len(self.seeds) or not all(map(_is_percentage, row)):
                raise BenchmarkError(
                    f"{self.source} is damaged: row {number} of '{metric}' must be {len(self.seeds)} percentages"
                )
        return np.asarray(rows, dtype=np.float64)


def _is_percentage(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and 0 <= value <= 100  # type: ignore[arg-type,operator]
