"""Which table judges a search: by the space's choices and by the data set."""

from __future__ import annotations

from pathlib import Path

import pytest

from archloom.benchmarks import BENCHMARKS, Benchmark, find_benchmark
from archloom.benchmarks.digits import DigitsTable
from archloom.benchmarks.nb201 import FILE_NAME, Nb201Table
from archloom.benchmarks.strokes import StrokesTable
from archloom.core.errors import BenchmarkError
from archloom.spaces import Darts, Nb201

MINI = Nb201(nodes=3, cells_per_stage=1)


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARCHLOOM_DATA", raising=False)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_table_can_be_loaded_and_is_described(name: str) -> None:
    kind = BENCHMARKS.find(name).load()
    assert issubclass(kind, Benchmark)
    assert kind.name == name
    assert kind.datasets
    assert len(BENCHMARKS[name].describe()) > 20


@pytest.mark.parametrize(
    ("dataset", "stand_in"),
    [("cifar10", "cifar10"), ("cifar100", "cifar100"), ("imagenet16", "imagenet16"), ("digits", "cifar10")],
)
def test_nb201_is_judged_by_its_table_whatever_the_stack(nb201_dir: Path, dataset: str, stand_in: str) -> None:
    found = find_benchmark(Nb201(cells_per_stage=1), dataset, nb201_dir)
    assert found is not None
    assert isinstance(found[0], Nb201Table)
    assert found[1] == stand_in


def test_a_restricted_space_is_judged_too(nb201_dir: Path) -> None:
    assert find_benchmark(Nb201().restrict({"0->1": ["none"]}), "cifar10", nb201_dir) is not None


def test_an_absent_table_is_none(tmp_path: Path) -> None:
    assert find_benchmark(Nb201(), "cifar10", tmp_path) is None
    assert find_benchmark(Nb201(), "cifar10") is None


def test_a_damaged_table_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"damaged")
    with pytest.raises(BenchmarkError, match="is damaged or no npz file"):
        find_benchmark(Nb201(), "cifar10", tmp_path)


def test_an_unknown_space_has_no_table(nb201_dir: Path) -> None:
    assert find_benchmark(Darts(), "cifar10", nb201_dir) is None
    assert find_benchmark(Nb201(nodes=5), "cifar10", nb201_dir) is None


def test_the_mini_space_has_no_table_on_foreign_data(monkeypatch: pytest.MonkeyPatch) -> None:
    table = object.__new__(DigitsTable)
    monkeypatch.setattr(DigitsTable, "find", classmethod(lambda cls, directory: table))
    assert find_benchmark(MINI, "digits") == (table, "digits")
    assert find_benchmark(MINI, "cifar10") is None


def test_the_mini_space_on_strokes_has_a_table_of_its_own() -> None:
    found = find_benchmark(MINI, "strokes")
    assert found is not None
    assert isinstance(found[0], StrokesTable)
    assert found[1] == "strokes"
    assert find_benchmark(Nb201(nodes=4), "strokes") is None


def test_without_its_file_the_mini_space_has_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DigitsTable, "file_name", "not_there.json")
    assert find_benchmark(MINI, "digits") is None
    with pytest.raises(BenchmarkError, match=r"^no digits table: the packaged not_there\.json does not exist$"):
        DigitsTable()
