"""Rank, regret and lookups, on a table small enough to work out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import pytest

from archloom.benchmarks import Benchmark, TableEntry
from archloom.benchmarks.base import Column
from archloom.core.errors import BenchmarkError, ParseError
from archloom.spaces import Architecture, Darts, Nb201

OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")


class FiveCells(Benchmark):
    """One edge, five operations."""

    name: ClassVar[str] = "five"
    space: ClassVar[Nb201] = Nb201(nodes=2)
    datasets: ClassVar[tuple[str, ...]] = ("cifar10",)
    epochs: ClassVar[tuple[int, ...]] = (200, 12)

    @classmethod
    def find(cls, directory: Path | None) -> Self | None:
        return cls()

    def column(self, dataset: str, *, metric: str = "test", epochs: int | None = None) -> Column:
        self._check_names(dataset, metric)
        if self._training_length(epochs) == 12:
            return np.asarray([5.0, 4.0, 3.0, 2.0, 1.0])
        values = {"test": [10.0, 94.3733, 90.0, 94.3733, 90.0], "valid": [10.0, 80.0, 70.0, 60.0, 91.5]}
        return np.asarray(values[metric], dtype=np.float32)

    def row(self, architecture: Mapping[str, str]) -> int:
        return self._code(architecture)

    def architecture(self, row: int) -> Architecture:
        return self._decode(row)


class Untimed(FiveCells):
    """A table that does not say how long it trained."""

    epochs: ClassVar[tuple[int, ...]] = ()


def cell(operation: str) -> Architecture:
    return Architecture({"0->1": operation})


@pytest.mark.parametrize(
    ("operation", "test", "valid", "rank", "regret"),
    [
        ("skip_connect", 94.3733, 80.0, 1, 0.0),
        ("nor_conv_3x3", 94.3733, 60.0, 1, 0.0),  # equals share a rank
        ("nor_conv_1x1", 90.0, 70.0, 3, 4.3733),
        ("avg_pool_3x3", 90.0, 91.5, 3, 4.3733),
        ("none", 10.0, 10.0, 5, 84.3733),
    ],
)
def test_rank_and_regret(operation: str, test: float, valid: float, rank: int, regret: float) -> None:
    assert FiveCells().look_up(cell(operation), "cifar10") == TableEntry(
        dataset="cifar10", test=test, valid=valid, rank=rank, count=5, regret=regret, epochs=200
    )


def test_a_standing_is_one_plain_line() -> None:
    entry = TableEntry("cifar10", 93.66, 91.0, 1204, 15_625, 0.7133, 200)
    line = "93.66 % test on cifar10 after 200 epochs: rank 1,204 of 15,625, regret 0.71 points"
    assert entry.describe() == str(entry) == line
    assert str(Untimed().look_up(cell("none"), "cifar10")) == (
        "10.00 % test on cifar10: rank 5 of 5, regret 84.37 points"
    )


def test_query_gives_the_number_as_it_was_printed() -> None:
    table = FiveCells()
    assert table.query(cell("skip_connect"), "cifar10") == 94.3733
    assert table.query(cell("avg_pool_3x3"), "cifar10", metric="valid") == 91.5
    assert table.query(cell("avg_pool_3x3"), "cifar10", epochs=12) == 1.0


def test_the_best_is_the_first_of_equals() -> None:
    assert FiveCells().best("cifar10") == (cell("skip_connect"), 94.3733)
    assert FiveCells().best("cifar10", metric="valid") == (cell("avg_pool_3x3"), 91.5)


def test_the_top_is_in_order() -> None:
    top = FiveCells().top("cifar10", 4)
    assert [architecture["0->1"] for architecture, _ in top] == [
        "skip_connect",
        "nor_conv_3x3",
        "nor_conv_1x1",
        "avg_pool_3x3",
    ]
    assert [entry.rank for _, entry in top] == [1, 1, 3, 3]


def test_codes_follow_the_order_of_enumeration() -> None:
    for place, architecture in enumerate(FiveCells.space.enumerate()):
        assert FiveCells().row(architecture) == place
        assert FiveCells().architecture(place) == architecture


def test_unknown_names_are_refused() -> None:
    table = FiveCells()
    with pytest.raises(BenchmarkError, match=r"^the five table has no data set 'cifar11'; did you mean 'cifar10'\?$"):
        table.look_up(cell("none"), "cifar11")
    with pytest.raises(BenchmarkError, match=r"^the five table has no metric 'tset'; did you mean 'test'\?$"):
        table.best("cifar10", metric="tset")
    with pytest.raises(BenchmarkError, match=r"^the five table trained for 200 or 12 epochs, asked for 100$"):
        table.query(cell("none"), "cifar10", epochs=100)
    with pytest.raises(BenchmarkError, match=r"trained for an unstated number of epochs, asked for 100$"):
        Untimed().query(cell("none"), "cifar10", epochs=100)
    with pytest.raises(ParseError, match=r"^decision '0->1' has no option 'max_pool'"):
        table.query({"0->1": "max_pool"}, "cifar10")


def test_a_table_without_latencies_says_so() -> None:
    assert FiveCells().devices == ()
    with pytest.raises(BenchmarkError, match=r"^the five table knows no latencies, asked for 'pixel3'$"):
        FiveCells().latency(cell("none"), "pixel3")


def test_a_table_knows_spaces_by_their_choices() -> None:
    assert FiveCells.knows(Nb201(nodes=2, cells_per_stage=1))
    assert FiveCells.knows(Nb201(nodes=2).restrict({"0->1": ["none"]}))
    assert FiveCells.knows(Nb201(nodes=2, operations=OPERATIONS[::-1]))
    assert FiveCells.knows(Nb201(nodes=2, operations=OPERATIONS[:2]))
    assert not FiveCells.knows(Nb201(nodes=2, operations=(*OPERATIONS, "max_pool_3x3")))
    assert not FiveCells.knows(Nb201(nodes=3))
    assert not FiveCells.knows(Darts())


def test_a_data_set_stands_for_itself_only() -> None:
    assert FiveCells.dataset_for("cifar10") == "cifar10"
    assert FiveCells.dataset_for("digits") is None
