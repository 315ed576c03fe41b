"""Embedded tables, by that of digits: means and spread over seeds, and files that are not such a table."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from archloom.benchmarks.digits import DigitsTable
from archloom.core.errors import BenchmarkError
from archloom.spaces import Architecture

SPACE = DigitsTable.space
CELLS = list(SPACE.enumerate())


def content() -> dict[str, Any]:
    """Row n scores n/2 - 1 and n/2 + 1 on test (from row 2 on), and a constant on validation."""
    test = [[0.0, 0.0], [0.0, 1.0]] + [[n / 2 - 1, n / 2 + 1] for n in range(2, 125)]
    return {
        "space": {"nodes": 3, "cells_per_stage": 1},
        "protocol": {"epochs": 30, "optimizer": "sgd"},
        "seeds": [0, 1],
        "test": test,
        "valid": [[50.0, 50.0]] * 125,
    }


def written(path: Path, value: Any) -> Path:
    file = path / "table.json"
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    return file


@pytest.fixture
def table(tmp_path: Path) -> DigitsTable:
    return DigitsTable(written(tmp_path, content()))


def test_a_query_is_the_mean_over_seeds(table: DigitsTable) -> None:
    assert table.query(CELLS[10], "digits") == 5.0
    assert table.query(CELLS[1], "digits") == 0.5
    assert table.query(CELLS[10], "digits", metric="valid") == 50.0


def test_rows_follow_the_enumeration(table: DigitsTable) -> None:
    assert [table.row(cell) for cell in CELLS] == list(range(125))
    assert [table.architecture(row) for row in range(125)] == CELLS


def test_rank_and_regret_by_hand(table: DigitsTable) -> None:
    assert str(table.look_up(CELLS[120], "digits")) == (
        "60.00 % test on digits after 30 epochs: rank 5 of 125, regret 2.00 points"
    )
    assert table.best("digits") == (CELLS[124], 62.0)


def test_the_spread_is_the_standard_deviation_of_a_sample(table: DigitsTable) -> None:
    assert table.spread(CELLS[10]) == pytest.approx(2**0.5, abs=1e-5)
    assert table.spread(CELLS[0]) == 0.0
    assert table.spread(CELLS[10], metric="valid") == 0.0


def test_every_seed_has_its_score(table: DigitsTable) -> None:
    assert table.scores_by_seed().shape == (125, 2)
    assert table.scores_by_seed()[10].tolist() == [4.0, 6.0]
    assert table.scores_by_seed("valid")[10].tolist() == [50.0, 50.0]
    table.scores_by_seed()[10] = 0.0  # a copy
    assert table.query(CELLS[10], "digits") == 5.0


def test_a_table_may_know_how_long_a_training_takes(tmp_path: Path, table: DigitsTable) -> None:
    assert table.training_seconds is None
    timed = DigitsTable(written(tmp_path, {**content(), "seconds": [n / 10 for n in range(125)]}))
    assert timed.training_seconds is not None
    assert timed.training_seconds[[0, 15]].tolist() == [0.0, 1.5]


def test_one_seed_has_no_spread(tmp_path: Path) -> None:
    value = {**content(), "seeds": [3], "test": [[float(n) / 2] for n in range(125)], "valid": [[1.0]] * 125}
    table = DigitsTable(written(tmp_path, value))
    assert table.spread(CELLS[10]) == 0.0
    assert table.query(CELLS[10], "digits") == 5.0
    assert table.seeds == (3,)


def test_a_table_need_not_say_how_long_it_trained(tmp_path: Path) -> None:
    table = DigitsTable(written(tmp_path, {**content(), "protocol": {}}))
    assert table.epochs == ()
    assert table.look_up(CELLS[0], "digits").epochs is None


def test_unknown_names_are_refused(table: DigitsTable) -> None:
    with pytest.raises(BenchmarkError, match=r"^the digits table has no data set 'cifar10'; known: digits$"):
        table.query(CELLS[0], "cifar10")
    with pytest.raises(BenchmarkError, match=r"^the digits table has no metric 'params'; known: test, valid$"):
        table.spread(CELLS[0], metric="params")
    with pytest.raises(BenchmarkError, match=r"^the digits table trained for 30 epochs, asked for 200$"):
        table.query(CELLS[0], "digits", epochs=200)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test": [[1.0, 2.0]] * 124}, r"table\.json is damaged: 'test' must have 125 rows, got 124$"),
        ({"valid": [[1.0]] * 125}, r"table\.json is damaged: row 0 of 'valid' must be 2 percentages$"),
        ({"valid": [[1.0, 2.0]] * 124 + [[1.0, 101]]}, r"row 124 of 'valid' must be 2 percentages$"),
        ({"valid": [[1.0, float("nan")]] * 125}, r"row 0 of 'valid' must be 2 percentages$"),
        ({"valid": [[1.0, "2"]] * 125}, r"row 0 of 'valid' must be 2 percentages$"),
        ({"valid": [3] * 125}, r"row 0 of 'valid' must be 2 percentages$"),
        ({"seeds": []}, r"is damaged: 'seeds' must be whole numbers, got \[\]$"),
        ({"seeds": ["a"]}, r"is damaged: 'seeds' must be whole numbers, got \['a'\]$"),
        ({"seeds": 3}, r"is not a digits table: 'seeds' must be a list$"),
        ({"seconds": [1.0] * 124}, r"is damaged: 'seconds' must be 125 numbers of 0 or more$"),
        ({"seconds": [-1.0] * 125}, r"is damaged: 'seconds' must be 125 numbers of 0 or more$"),
        ({"seconds": 5}, r"is damaged: 'seconds' must be 125 numbers of 0 or more$"),
        ({"space": {"nodes": 4}}, r"must be a table of 3 nodes and the operations none, .*, got 4 nodes and "),
        ({"space": {"nodes": 3, "operations": ["none"]}}, r"got 3 nodes and \['none'\]$"),
    ],
)
def test_a_damaged_table_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(BenchmarkError, match=message):
        DigitsTable(written(tmp_path, {**content(), **change}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"table\.json is damaged: "),
        ("[" * 100_000, r"table\.json is damaged: "),
        ("[]", r"table\.json is not a digits table: 'space' must be a dict$"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BenchmarkError, match=message):
        DigitsTable(written(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"^no digits table: .*nowhere\.json does not exist$"):
        DigitsTable(tmp_path / "nowhere.json")


def test_the_packaged_table_is_whole() -> None:
    table = DigitsTable.find(None)
    if table is None:
        pytest.skip("the packaged digits table has not been built")
    assert len(table.seeds) >= 2
    assert table.epochs
    assert len(table.column("digits")) == 125
    cell: Architecture = SPACE.sample(random.Random(0))
    assert 0 <= table.query(cell, "digits") <= 100
    assert table.best("digits")[1] > 90  # a table whose best cell cannot read digits was built wrongly
