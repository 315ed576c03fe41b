"""Tables of all 125 three-node cells that ship with the package, one data set each.

They show the regret of a search, and let tests check one, with no download and in seconds.
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


def _mini_space() -> Nb201:
    """Return the space of the table, as the catalogue has it."""
    return Nb201(**SPACES["nb201_mini"].settings)


class EmbeddedTable(Benchmark):
    """Test and validation accuracy of every cell, over several seeds; a table names itself, its data set and its file.

    `benchmarks/build_embedded_table.py` writes the files.
    """

    space: ClassVar[Nb201] = _mini_space()
    file_name: ClassVar[str]

    def __init__(self, path: Path | None = None) -> None:
        self.source = str(path) if path is not None else f"the packaged {self.file_name}"
        content = self._read(path)
        self.protocol: dict[str, Any] = dict(content["protocol"])
        self.seeds: tuple[int, ...] = tuple(content["seeds"])
        self._scores = {metric: self._check_scores(metric, content[metric]) for metric in self.metrics}
        self._seconds = self._check_seconds(content.get("seconds"))

    @classmethod
    def find(cls, directory: Path | None) -> Self | None:
        """Return the packaged table; the data folder is not used."""
        return cls() if resources.files("archloom.benchmarks").joinpath(cls.file_name).is_file() else None

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
        self._check_names(self.datasets[0], metric)
        scores = self._scores[metric][self.row(architecture)]
        return round(float(scores.std(ddof=1)), DIGITS_KEPT) if len(scores) > 1 else 0.0

    def scores_by_seed(self, metric: str = "test") -> NDArray[np.float64]:
        """Return the accuracy of every training in percent, cells x seeds; rows are those of `column`."""
        self._check_names(self.datasets[0], metric)
        return self._scores[metric].copy()

    @property
    def training_seconds(self) -> Column | None:
        """Return the processor seconds of one training of every cell; None if the table was built without them."""
        return None if self._seconds is None else self._seconds.copy()

    def row(self, architecture: Mapping[str, str]) -> int:
        """Return the row of an architecture."""
        return self._code(architecture)

    def architecture(self, row: int) -> Architecture:
        """Return the architecture of a row."""
        return self._decode(row)

    # --- reading

    def _read(self, path: Path | None) -> JsonObject:
        file = resources.files("archloom.benchmarks").joinpath(self.file_name) if path is None else path
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise BenchmarkError(f"no {self.name} table: {self.source} does not exist") from error
        except (OSError, ValueError, RecursionError) as error:
            raise BenchmarkError(f"{self.source} is damaged: {error}") from error
        wanted = {"space": dict, "protocol": dict, "seeds": list, "test": list, "valid": list}
        for name, kind in wanted.items():
            if not isinstance(content, dict) or not isinstance(content.get(name), kind):
                raise BenchmarkError(f"{self.source} is not a {self.name} table: '{name}' must be a {kind.__name__}")
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

    def _check_seconds(self, values: object) -> NDArray[np.float64] | None:
        if values is None:
            return None
        if not isinstance(values, list) or len(values) != self.space.cardinality or not all(map(_is_duration, values)):
            raise BenchmarkError(
                f"{self.source} is damaged: 'seconds' must be {self.space.cardinality} numbers of 0 or more"
            )
        return np.asarray(values, dtype=np.float64)


def _is_percentage(value: object) -> bool:
    return _is_duration(value) and value <= 100  # type: ignore[operator]


def _is_duration(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0  # type: ignore[arg-type,operator]
