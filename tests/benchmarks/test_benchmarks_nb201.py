"""The NAS-Bench-201 table: published numbers, every lookup, and files that are missing, partial or wrong."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from archloom.benchmarks.archive import read_array, write_arrays
from archloom.benchmarks.nb201 import COLUMN_NAMES, FILE_NAME, LATENCY_FILE_NAME, Nb201Table, column_name
from archloom.core.errors import BenchmarkError
from archloom.spaces import Architecture, Nb201

SPACE = Nb201()
ALL_SKIP = SPACE.parse(
    "|skip_connect~0|+|skip_connect~0|skip_connect~1|+|skip_connect~0|skip_connect~1|skip_connect~2|"
)


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARCHLOOM_DATA", raising=False)


@pytest.fixture(scope="module")
def table(nb201_dir: Path) -> Nb201Table:
    return Nb201Table.open(nb201_dir)


# --- the published table


@pytest.mark.parametrize(("dataset", "best"), [("cifar10", 94.37), ("cifar100", 73.51), ("imagenet16", 47.31)])
def test_the_best_cells_are_those_of_the_paper(table: Nb201Table, dataset: str, best: float) -> None:
    architecture, value = table.best(dataset)
    assert round(value, 2) == best
    entry = table.look_up(architecture, dataset)
    assert (entry.rank, entry.count, entry.regret) == (1, 15_625, 0.0)


def test_the_cell_of_skips_reaches_54_30(table: Nb201Table) -> None:
    entry = table.look_up(ALL_SKIP, "cifar10")
    assert f"{entry.test:.2f}" == "54.30"
    assert entry.regret == pytest.approx(94.3733 - 54.2967, abs=1e-9)
    assert entry.epochs == 200


def test_every_lookup_finds_the_row_of_its_string(table: Nb201Table, nb201_dir: Path) -> None:
    texts = np.load(nb201_dir / FILE_NAME, allow_pickle=False)["arch"].tolist()
    assert len(texts) == 15_625
    for row, text in enumerate(texts):
        architecture = SPACE.parse(text)
        assert table.row(architecture) == row
        assert table.architecture(row) == architecture


def test_every_column_can_be_asked_for(table: Nb201Table, nb201_dir: Path) -> None:
    raw = np.load(nb201_dir / FILE_NAME, allow_pickle=False)
    row = table.row(ALL_SKIP)
    for dataset in table.datasets:
        for metric in table.metrics:
            for epochs in table.epochs:
                expected = raw[column_name(dataset, metric, epochs)][row]
                found = table.query(ALL_SKIP, dataset, metric=metric, epochs=epochs)
                assert found == pytest.approx(float(expected), abs=1e-5)


def test_numbers_come_back_as_printed(table: Nb201Table) -> None:
    first = table.architecture(0)
    assert table.query(first, "cifar10") == 85.8633
    assert table.query(first, "cifar10", epochs=12) == 69.55
    assert table.query(first, "cifar10", metric="params") == 129_306
    assert table.query(first, "cifar10", metric="flops_M") == 15.64737


def test_the_top_by_test_accuracy_descends(table: Nb201Table) -> None:
    top = table.top("cifar100", 20)
    values = [entry.test for _, entry in top]
    assert len(values) == 20
    assert values == sorted(values, reverse=True)
    assert top[0][0] == table.best("cifar100")[0]


def test_latencies_are_read_from_the_file_beside(table: Nb201Table) -> None:
    assert len(table.devices) == 27
    assert table.latency(table.architecture(0), "pixel3") == 3.60585
    with pytest.raises(BenchmarkError, match=r"has no device 'pixel4'; did you mean 'pixel\d'\?$"):
        table.latency(ALL_SKIP, "pixel4")


def test_isomorphic_cells_share_the_published_class(table: Nb201Table) -> None:
    published = read_array(table.path.with_name("nasbench201_isomorph.npz"), "isomorph")
    classes: dict[str, set[int]] = {}
    rng = random.Random(0)
    for _ in range(500):
        architecture = SPACE.sample(rng)
        classes.setdefault(SPACE.canonical(architecture), set()).add(int(published[table.row(architecture)]))
    assert all(len(found) == 1 for found in classes.values())
    assert len(set.union(*classes.values())) == len(classes)


# --- tables made by hand


def made_by_hand(count: int = 3) -> dict[str, NDArray[Any]]:
    """A table of the first cells of the space; a column holds 0, 1, 2, ..."""
    cells = [cell for cell, _ in zip(SPACE.enumerate(), range(count), strict=False)]
    return {
        "arch": np.asarray([SPACE.format(cell) for cell in cells]),
        "ops": np.asarray([[d.index(cell[d.name]) for d in SPACE.decisions] for cell in cells], dtype=np.int8),
        **{name: np.arange(count, dtype=np.float32) for name in COLUMN_NAMES},
    }


@pytest.fixture
def small(tmp_path: Path) -> Nb201Table:
    write_arrays(tmp_path / FILE_NAME, made_by_hand())
    return Nb201Table.open(tmp_path)


def last_edge(operation: str) -> Architecture:
    return Architecture(dict.fromkeys([decision.name for decision in SPACE.decisions], "none")).with_option(
        "2->3", operation
    )


def test_a_partial_table_ranks_what_it_holds_and_refuses_the_rest(small: Nb201Table) -> None:
    entry = small.look_up(last_edge("skip_connect"), "cifar10")
    assert (entry.rank, entry.count, entry.regret) == (2, 3, 1.0)
    assert small.best("cifar10") == (last_edge("nor_conv_1x1"), 2.0)
    with pytest.raises(BenchmarkError, match=r"nasbench201_compact\.npz holds 3 of 15,625 cells, not \|none~0\|\+"):
        small.query(last_edge("avg_pool_3x3"), "cifar10")


def test_columns_are_read_once_and_only_when_asked_for(small: Nb201Table, monkeypatch: pytest.MonkeyPatch) -> None:
    from archloom.benchmarks import nb201

    names: list[str] = []
    read = nb201.read_array

    def noting(path: Path, name: str) -> NDArray[Any]:
        names.append(name)
        return read(path, name)

    monkeypatch.setattr(nb201, "read_array", noting)
    for _ in range(2):
        small.query(last_edge("none"), "cifar10", metric="valid")
    assert sorted(names) == ["cifar10_valid", "ops"]


def test_without_its_file_a_table_has_no_latencies(small: Nb201Table) -> None:
    assert small.devices == ()
    with pytest.raises(
        BenchmarkError, match=r"^no latencies beside the nb201 table: .*latency_help\.npz does not exist"
    ):
        small.latency(last_edge("none"), "pixel3")


def test_latencies_of_another_table_are_refused(small: Nb201Table) -> None:
    write_arrays(small.path.with_name(LATENCY_FILE_NAME), {"pixel3": np.zeros(7)})
    with pytest.raises(BenchmarkError, match=r"array 'pixel3' must hold a finite number for each of 3 cells; it is"):
        small.latency(last_edge("none"), "pixel3")


# --- where it looks


@pytest.mark.parametrize("below", ["", "nb201", "nasbench201"])
def test_the_table_is_found_in_a_folder_or_the_usual_subfolders(tmp_path: Path, below: str) -> None:
    write_arrays(tmp_path / below / FILE_NAME, made_by_hand())
    assert Nb201Table.open(tmp_path).path == tmp_path / below / FILE_NAME


def test_the_table_is_found_by_its_own_path(tmp_path: Path) -> None:
    write_arrays(tmp_path / "mine.npz", made_by_hand())
    assert Nb201Table.open(tmp_path / "mine.npz").path == tmp_path / "mine.npz"


def test_the_table_is_found_where_the_variable_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_arrays(tmp_path / FILE_NAME, made_by_hand())
    monkeypatch.setenv("ARCHLOOM_DATA", str(tmp_path))
    assert Nb201Table.open(None).path == tmp_path / FILE_NAME
    assert Nb201Table.open(tmp_path / "elsewhere").path == tmp_path / FILE_NAME


def test_a_missing_table_says_where_it_looked_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError) as caught:
        Nb201Table.open(tmp_path)
    message = str(caught.value)
    assert all(str(tmp_path / below / FILE_NAME) in message for below in ("", "nb201", "nasbench201"))
    assert "NATS-tss-v1_0-3ffb9-simple" in message
    assert "\n" not in message


def test_without_any_folder_the_message_names_the_variable() -> None:
    with pytest.raises(BenchmarkError, match=r"looked for nowhere, as ARCHLOOM_DATA is not set"):
        Nb201Table.open()


# --- files that are wrong


def damaged(name: str, array: Any) -> dict[str, NDArray[Any]]:
    return {**made_by_hand(), name: np.asarray(array)}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (damaged("ops", [1.5, 2.5]), r"is not an nb201 table: 'ops' must be whole numbers in rows of 6$"),
        (damaged("ops", np.zeros((0, 6), dtype=np.int8)), r"'ops' must be whole numbers in rows of 6$"),
        (damaged("ops", np.full((3, 6), 5)), r"is damaged: 'ops' must lie between 0 and 4$"),
        (damaged("ops", np.full((3, 6), -1)), r"is damaged: 'ops' must lie between 0 and 4$"),
        (damaged("ops", np.zeros((3, 6), dtype=np.int8)), r"is damaged: 'ops' lists a cell twice$"),
        (damaged("cifar10_test", [1.0, 2.0]), r"array 'cifar10_test' must hold a finite number for each of 3 cells"),
        (damaged("cifar10_test", [1.0, np.nan, 2.0]), r"array 'cifar10_test' must hold a finite number"),
        (damaged("cifar10_test", ["a", "b", "c"]), r"array 'cifar10_test' must hold a finite number"),
    ],
)
def test_a_damaged_table_is_refused_in_one_line(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    write_arrays(tmp_path / FILE_NAME, arrays)
    table = Nb201Table.open(tmp_path)
    with pytest.raises(BenchmarkError, match=message) as caught:
        table.query(last_edge("none"), "cifar10")
    assert "\n" not in str(caught.value)


def test_a_foreign_npz_is_refused_when_opened(tmp_path: Path) -> None:
    np.savez(tmp_path / FILE_NAME, weights=np.zeros(3))
    with pytest.raises(BenchmarkError, match=r"is not an nb201 table: it has no array 'arch'$"):
        Nb201Table.open(tmp_path)


def test_a_file_that_is_no_npz_is_refused_when_opened(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("<html>not found</html>")
    with pytest.raises(BenchmarkError, match=r"is damaged or no npz file: "):
        Nb201Table.open(tmp_path)


def test_a_process_opens_a_table_once_until_its_file_is_another(nb201_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes((nb201_dir / FILE_NAME).read_bytes())
    first = Nb201Table.find(tmp_path)
    assert Nb201Table.find(tmp_path) is first
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert Nb201Table.find(tmp_path) is not first
