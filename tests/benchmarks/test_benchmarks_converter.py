"""From published records to the compact table: the same numbers, and nothing of a pickle ever run."""

from __future__ import annotations

import bz2
import collections
import io
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from archloom.benchmarks import records
from archloom.benchmarks.archive import array_names, read_array, write_arrays
from archloom.benchmarks.converter import convert
from archloom.benchmarks.nb201 import COLUMN_NAMES, FILE_NAME, Nb201Table
from archloom.benchmarks.records import read_record
from archloom.core.errors import BenchmarkError, StorageError

RECORD = "NATS-tss-v1_0-3ffb9-simple_{:06d}.pickle.pbz2"
TEXT = "|none~0|+|none~0|none~1|+|none~0|none~1|{}~2|"


@pytest.fixture(scope="module")
def samples(nb201_dir: Path) -> Path:
    return nb201_dir / "official_samples"


# --- published records


def test_published_records_give_the_numbers_of_the_table(samples: Path, nb201_dir: Path, tmp_path: Path) -> None:
    target = convert(samples, tmp_path, partial=True)
    assert target == tmp_path / FILE_NAME
    rows = [0, 11, 284]
    for name in ("arch", "ops", *COLUMN_NAMES):
        expected = read_array(nb201_dir / FILE_NAME, name)
        converted = read_array(target, name)
        assert converted.tolist() == expected[rows].tolist(), name
        if name != "arch":  # whose width is that of the longest string
            assert converted.dtype == expected.dtype


def test_a_converted_table_can_be_opened(samples: Path, tmp_path: Path) -> None:
    table = Nb201Table.open(convert(samples, tmp_path / "deep" / "mine.npz", partial=True))
    assert [table.query(table.architecture(row), "cifar10") for row in range(3)] == [85.8633, 91.5833, 88.79]


def test_progress_is_reported(samples: Path, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    convert(samples, tmp_path, partial=True, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(1, 3), (2, 3), (3, 3)]


def test_an_incomplete_folder_says_how_many_are_missing(samples: Path, tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"official_samples lacks 15,622 of 15,625 architectures; allow a partial"):
        convert(samples, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_renamed_record_is_found_out(samples: Path, tmp_path: Path) -> None:
    shutil.copy(samples / RECORD.format(11), tmp_path / RECORD.format(12))
    with pytest.raises(BenchmarkError, match=r"must be the record of architecture 12, it says 11$"):
        convert(tmp_path, tmp_path / "out.npz", partial=True)


# --- records made by hand


def result(accuracies: dict[str, float], **more: Any) -> dict[str, Any]:
    return {"eval_acc1es": accuracies, "params": np.float64(0.5), "flop": 10.5, **more}


def record(index: int = 0, operation: str = "none") -> dict[str, Any]:
    def trained(last: int) -> dict[str, Any]:
        return {
            "arch_index": index,
            "arch_str": TEXT.format(operation),
            "all_results": {
                ("cifar10-valid", 777): result({f"x-valid@{last}": 60.0, f"ori-test@{last}": 1.0}),
                ("cifar10-valid", 888): result({f"x-valid@{last}": 61.0, f"ori-test@{last}": 1.0}),
                ("cifar10", 777): result({f"ori-test@{last}": 70.0, "ori-test@0": 2.0}),
                ("cifar100", 777): collections.OrderedDict(
                    result({f"x-valid@{last}": 30.0, f"x-test@{last}": 31.0, f"ori-test@{last}": 3.0})
                ),
                ("ImageNet16-120", 777): result({f"x-valid@{last}": 20.0, f"x-test@{last}": 21.0}),
            },
        }

    return {"12": trained(11), "200": trained(199)}


def written(path: Path, content: Any) -> Path:
    file = path / RECORD.format(0)
    file.write_bytes(bz2.compress(content if isinstance(content, bytes) else pickle.dumps(content, protocol=4)))
    return file


def test_a_record_is_averaged_over_seeds_at_the_last_epoch(tmp_path: Path) -> None:
    found = read_record(written(tmp_path, record()))
    assert found.index == 0
    assert found.text == TEXT.format("none")
    assert set(found.columns) == set(COLUMN_NAMES)
    assert found.columns["cifar10_valid"] == 60.5
    assert found.columns["cifar10_test"] == 70.0
    assert found.columns["cifar100_test_12ep"] == 31.0
    assert found.columns["imagenet16_valid"] == 20.0
    assert found.columns["cifar10_params"] == 500_000
    assert found.columns["imagenet16_flops_M"] == 10.5


@pytest.mark.parametrize("value", [np.float64(1.5), np.float32(1.5), np.int64(2)])
def test_numbers_of_numpy_are_read_whatever_their_width(tmp_path: Path, value: Any) -> None:
    changed = record()
    for epochs in changed.values():
        epochs["all_results"]["cifar10", 777]["flop"] = value
    assert read_record(written(tmp_path, changed)).columns["cifar10_flops_M"] == float(value)


def test_numbers_stored_with_the_high_byte_first_are_read(tmp_path: Path) -> None:
    kind = np.dtype(">i4")
    raw = pickle.dumps((kind, np.asarray([7], dtype=kind).tobytes()), protocol=4)
    loaded_kind, loaded_raw = records._RecordUnpickler(io.BytesIO(raw)).load()
    assert loaded_kind.unpack(loaded_raw) == 7.0


def without(*keys: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        del content[keys[-1]]

    return change


def with_value(value: Any, *keys: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return change


CIFAR10 = ("200", "all_results", ("cifar10", 777))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("12"), "it lacks '12'$"),
        (without(*CIFAR10), "it lacks 'cifar10'$"),
        (without(*CIFAR10, "eval_acc1es", "ori-test@199"), "it lacks 'ori-test@199'$"),
        (without(*CIFAR10, "flop"), "it lacks 'flop'$"),
        (with_value(101.0, *CIFAR10, "eval_acc1es", "ori-test@199"), r"cifar10 test must be a percentage, got 101\.0$"),
        (with_value(float("nan"), *CIFAR10, "eval_acc1es", "ori-test@199"), "must be a percentage, got nan$"),
        (with_value(float("inf"), *CIFAR10, "params"), "cifar10 params must be a positive number, got inf$"),
        (with_value([], "200"), "list indices must be integers"),
    ],
)
def test_a_record_that_lacks_something_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    content = record()
    change(content)
    path = written(tmp_path, content)
    with pytest.raises(BenchmarkError, match=message) as caught:
        read_record(path)
    assert str(caught.value).startswith(f"{path} is damaged or no NATS-Bench record: ")


@pytest.mark.parametrize("content", [b"", b"\x80\x04", b"text", pickle.dumps([1, 2])])
def test_what_is_no_record_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(BenchmarkError, match=r"is damaged or no NATS-Bench record: \S"):
        read_record(written(tmp_path, content))


def test_a_file_that_is_not_compressed_or_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / RECORD.format(0)
    with pytest.raises(BenchmarkError, match=r"is damaged or no NATS-Bench record: .*No such file"):
        read_record(path)
    path.write_bytes(pickle.dumps(record()))
    with pytest.raises(BenchmarkError, match=r"is damaged or no NATS-Bench record: Invalid data stream"):
        read_record(path)


def test_an_oversized_record_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_BYTES", 1000)
    with pytest.raises(BenchmarkError, match=r"a record has at most 1,000 bytes uncompressed$"):
        read_record(written(tmp_path, record()))


# --- hostile pickles


class Hostile:
    """Calls a function when unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_pickle_that_calls_something_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    touched = tmp_path / "touched"
    raw = pickle.dumps(Hostile(os.mkdir, str(touched)), protocol=protocol)
    with pytest.raises(BenchmarkError, match=r"it names posix\.mkdir, which no record needs; it was not called$"):
        read_record(written(tmp_path, raw))
    assert not touched.exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("os", "system"),
        ("collections", "OrderedDict.__init__"),
        ("numpy", "load"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("torch._utils", "_rebuild_tensor_v2"),
    ],
)
def test_no_other_name_is_permitted(tmp_path: Path, module: str, name: str) -> None:
    raw = b"\x80\x04" + b"".join(b"\x8c" + bytes([len(text)]) + text.encode() for text in (module, name)) + b"\x93."
    with pytest.raises(BenchmarkError, match=f"it names {module}.{name}, which no record needs"):
        read_record(written(tmp_path, raw))


# --- from a table


def small_table(path: Path, **changes: Any) -> Path:
    operations = np.zeros((2, 6), dtype=np.int8)
    operations[1, 5] = 1
    arrays = {
        "arch": np.asarray([TEXT.format("none"), TEXT.format("skip_connect")]),
        "ops": operations,
        **{name: np.asarray([1.0, 2.0]) for name in COLUMN_NAMES},
    }
    file = path / "source.npz"
    write_arrays(file, {**arrays, **changes})
    return file


def test_a_table_is_checked_and_copied(nb201_dir: Path, tmp_path: Path) -> None:
    target = convert(nb201_dir / FILE_NAME, tmp_path)
    assert set(array_names(target)) == {"arch", "ops", *COLUMN_NAMES}
    for name in array_names(target):
        assert np.array_equal(read_array(target, name), read_array(nb201_dir / FILE_NAME, name))


def test_what_does_not_belong_to_a_table_is_not_copied(tmp_path: Path) -> None:
    target = convert(small_table(tmp_path, extra=np.zeros(5)), tmp_path / "out.npz", partial=True)
    assert set(array_names(target)) == {"arch", "ops", *COLUMN_NAMES}


def test_an_incomplete_table_says_how_many_are_missing(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"source\.npz lacks 15,623 of 15,625 architectures"):
        convert(small_table(tmp_path), tmp_path / "out.npz")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arch": np.asarray([TEXT.format("none"), TEXT.format("nor_conv_1x1")])}, "'arch' and 'ops' disagree$"),
        ({"arch": np.asarray(["what", "ever"])}, "source.npz is damaged: an NB201 string of this space has 3 groups"),
        ({"cifar10_test": np.asarray([1.0, np.inf])}, "array 'cifar10_test' must hold a finite number"),
    ],
)
def test_a_damaged_table_is_not_copied(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BenchmarkError, match=message):
        convert(small_table(tmp_path, **changes), tmp_path / "out.npz", partial=True)
    assert not (tmp_path / "out.npz").exists()


# --- what cannot be converted


def test_a_source_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "archive.tar").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BenchmarkError, match=r"nowhere does not exist$"):
        convert(tmp_path / "nowhere", tmp_path)
    with pytest.raises(
        BenchmarkError, match=r"archive\.tar must be a folder of NATS-Bench records \(unpack it first\)"
    ):
        convert(tmp_path / "archive.tar", tmp_path)
    with pytest.raises(BenchmarkError, match=r"empty holds no record like NATS-tss-v1_0-3ffb9-simple_000000"):
        convert(tmp_path / "empty", tmp_path)


def test_two_records_of_one_cell_are_refused(tmp_path: Path) -> None:
    for index in (0, 1):
        raw = pickle.dumps(record(index), protocol=4)
        (tmp_path / RECORD.format(index)).write_bytes(bz2.compress(raw))
    with pytest.raises(BenchmarkError, match=r"is damaged: 'ops' lists a cell twice$"):
        convert(tmp_path, tmp_path / "out.npz", partial=True)


def test_a_destination_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=r"^cannot write .*file/nasbench201_compact\.npz: "):
        convert(small_table(tmp_path), tmp_path / "file", partial=True)
