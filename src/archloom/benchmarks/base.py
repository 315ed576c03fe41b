"""Tables of known scores: what every architecture of a space reaches when it is trained in full.

The result of a search needs no training there: its rank and its regret are looked up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from archloom.core.errors import BenchmarkError, suggestion
from archloom.core.json_object import JsonObject
from archloom.spaces import Architecture, SearchSpace

Column = NDArray[np.floating[Any] | np.integer[Any]]
"""One number per architecture of a table, in the order of its rows."""

DIGITS_KEPT = 5  # tables hold single precision: rounding takes away what the conversion added


@dataclass(frozen=True)
class TableEntry:
    """Scores, rank and regret of an architecture in a table; accuracies in percent.

    Attributes:
        dataset: the data set of the table.
        test: test accuracy.
        valid: validation accuracy, None where the table has none.
        rank: the rank by test accuracy; 1 is the best, equals share a rank.
        count: architectures in the table.
        regret: the best test accuracy minus this one, in points.
        epochs: epochs that the table trained for.
        instead_of: the data set of the search, where the table has another one.

    Examples:
        >>> import archloom
        >>> print(archloom.TableEntry("digits", test=97.5, valid=97.0, rank=3, count=125, regret=0.25))
        97.50 % test on digits: rank 3 of 125, regret 0.25 points
    """

    dataset: str
    test: float
    valid: float | None
    rank: int  # by test accuracy, 1 is the best; equals share a rank
    count: int
    regret: float  # the best test accuracy minus this one, in points
    epochs: int | None = None  # how long the table trained for
    instead_of: str | None = None  # the data set of the search, where the table's is another one

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the entry that a record holds."""
        return cls(**{field.name: value[field.name] for field in fields(cls) if field.name in value})

    def describe(self) -> str:
        """Return accuracy, rank and regret in one sentence."""
        trained = f" after {self.epochs} epochs" if self.epochs else ""
        return (
            f"{self.test:.2f} % test on {self.dataset}{trained}: "
            f"rank {self.rank:,} of {self.count:,}, regret {self.regret:.2f} points"
        )

    __str__ = describe


class Benchmark(ABC):
    """A table of scores for the architectures of one space.

    A table implements `find`, `epochs`, `column`, `row` and `architecture`, and sets `name`, `space` and `datasets`.

    Examples:
        >>> import archloom
        >>> archloom.Benchmark.metrics
        ('test', 'valid')
    """

    name: ClassVar[str]
    space: ClassVar[SearchSpace]
    datasets: ClassVar[tuple[str, ...]]
    metrics: ClassVar[tuple[str, ...]] = ("test", "valid")

    # --- what a table implements

    @classmethod
    @abstractmethod
    def find(cls, directory: Path | None) -> Self | None:
        """Return the table, if its file is there; None if it is not."""

    @classmethod
    def dataset_for(cls, dataset: str) -> str | None:
        """Return the table's data set to use for the one named, None if there is none."""
        return dataset if dataset in cls.datasets else None

    @property
    @abstractmethod
    def epochs(self) -> tuple[int, ...]:
        """Return the training lengths of the table in epochs; the first is the default."""

    @abstractmethod
    def column(self, dataset: str, *, metric: str = "test", epochs: int | None = None) -> Column:
        """Return one metric of every architecture."""

    @abstractmethod
    def row(self, architecture: Mapping[str, str]) -> int:
        """Return the row of an architecture."""

    @abstractmethod
    def architecture(self, row: int) -> Architecture:
        """Return the architecture of a row."""

    # --- derived from that

    @classmethod
    def knows(cls, space: SearchSpace) -> bool:
        """Return whether the table covers every choice of the space, however often a network repeats the cell."""
        known = {decision.name: set(decision.options) for decision in cls.space.full_decisions()}
        asked = {decision.name: set(decision.options) for decision in space.full_decisions()}
        return known.keys() == asked.keys() and all(asked[name] <= known[name] for name in known)

    def query(
        self, architecture: Mapping[str, str], dataset: str, *, metric: str = "test", epochs: int | None = None
    ) -> float:
        """Return one number of one architecture: accuracies in percent, parameters as a count, FLOPs in millions."""
        return plain_number(self.column(dataset, metric=metric, epochs=epochs)[self.row(architecture)])

    def look_up(self, architecture: Mapping[str, str], dataset: str) -> TableEntry:
        """Return scores, rank and regret of an architecture, by test accuracy after the full training."""
        return self._entry(self.row(architecture), dataset)

    def best(self, dataset: str, *, metric: str = "test") -> tuple[Architecture, float]:
        """Return the architecture of the highest number, and that number."""
        column = self.column(dataset, metric=metric)
        row = int(np.argmax(column))
        return self.architecture(row), plain_number(column[row])

    def top(self, dataset: str, count: int) -> list[tuple[Architecture, TableEntry]]:
        """Return the best architectures by test accuracy, the best one first."""
        order = np.argsort(-self.column(dataset), kind="stable")[:count]
        return [(self.architecture(int(row)), self._entry(int(row), dataset)) for row in order]

    def _entry(self, row: int, dataset: str) -> TableEntry:
        test = self.column(dataset)
        valid = self.column(dataset, metric="valid")[row] if "valid" in self.metrics else None
        return TableEntry(
            dataset=dataset,
            test=plain_number(test[row]),
            valid=None if valid is None else plain_number(valid),
            rank=1 + int(np.count_nonzero(test > test[row])),
            count=len(test),
            regret=round(plain_number(test.max()) - plain_number(test[row]), DIGITS_KEPT),
            epochs=self.epochs[0] if self.epochs else None,
        )

    # --- latency, which only some tables know

    @property
    def devices(self) -> tuple[str, ...]:
        """Return the devices whose latency is known."""
        return ()

    def latencies(self, device: str) -> Column:
        """Return milliseconds for one forward pass on a device, of every architecture."""
        raise BenchmarkError(f"the {self.name} table knows no latencies, asked for '{device}'")

    def latency(self, architecture: Mapping[str, str], device: str) -> float:
        """Return milliseconds for one forward pass on a device."""
        return plain_number(self.latencies(device)[self.row(architecture)])

    # --- checks and codes that tables share

    def _check_names(self, dataset: str, metric: str) -> None:
        for kind, name, known in (("data set", dataset, self.datasets), ("metric", metric, self.metrics)):
            if name not in known:
                raise BenchmarkError(f"the {self.name} table has no {kind} '{name}'{suggestion(name, known)}")

    def _training_length(self, epochs: int | None) -> int | None:
        """Return the training length, by default the first; None for a table without training lengths."""
        if epochs is not None and epochs not in self.epochs:
            known = " or ".join(map(str, self.epochs)) or "an unstated number of"
            raise BenchmarkError(f"the {self.name} table trained for {known} epochs, asked for {epochs}")
        return epochs or (self.epochs[0] if self.epochs else None)

    @classmethod
    def _code(cls, architecture: Mapping[str, str]) -> int:
        """Return the place of an architecture in `space.enumerate()`: its options read as the digits of a number."""
        code, checked = 0, cls.space.check(architecture)
        for decision in cls.space.decisions:
            code = code * len(decision.options) + decision.index(checked[decision.name])
        return code

    @classmethod
    def _decode(cls, code: int) -> Architecture:
        choices: dict[str, str] = {}
        for decision in reversed(cls.space.decisions):
            code, digit = divmod(code, len(decision.options))
            choices[decision.name] = decision.options[digit]
        return cls.space.check(choices)


def plain_number(value: Any) -> float:
    """Return a number of a table as a Python float."""
    return round(float(value), DIGITS_KEPT)
