"""npz files: read without pickles, refused in one line when damaged, written whole or not at all."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from archloom.benchmarks import archive
from archloom.benchmarks.archive import array_names, read_array, write_arrays
from archloom.core.errors import BenchmarkError, StorageError

NUMBERS = np.arange(1000, dtype=np.float32)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "table.npz"
    write_arrays(path, {"numbers": NUMBERS, "words": np.asarray(["a", "bc"])})
    return path


def test_what_was_written_is_read(file: Path) -> None:
    assert array_names(file) == ("numbers", "words")
    assert np.array_equal(read_array(file, "numbers"), NUMBERS)
    assert read_array(file, "words").tolist() == ["a", "bc"]


def test_numpy_reads_the_file_too(file: Path) -> None:
    with np.load(file, allow_pickle=False) as loaded:
        assert np.array_equal(loaded["numbers"], NUMBERS)


def test_writing_makes_the_folder_and_leaves_nothing_else_behind(tmp_path: Path) -> None:
    write_arrays(tmp_path / "new" / "table.npz", {"numbers": NUMBERS})
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["table.npz"]


def test_a_failed_write_leaves_the_old_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        write_arrays(file, {"numbers": np.zeros(3)})
    assert np.array_equal(read_array(file, "numbers"), NUMBERS)
    assert [path.name for path in file.parent.iterdir()] == ["table.npz"]


def test_objects_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allow_pickle"):
        write_arrays(tmp_path / "table.npz", {"objects": np.asarray([{}], dtype=object)})
    assert list(tmp_path.iterdir()) == []


def test_a_missing_array_is_named(file: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"table\.npz is not a table of this kind: it has no array 'ops'$"):
        read_array(file, "ops")


@pytest.mark.parametrize("content", [b"", b"not an archive", pickle.dumps({"a": 1}), b"PK\x03\x04 cut short"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "table.npz"
    path.write_bytes(content)
    with pytest.raises(BenchmarkError, match=r"table\.npz is damaged or no npz file: ") as caught:
        array_names(path)
    assert "\n" not in str(caught.value)


def test_damage_within_an_array_is_found(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[200:400] = bytes(200)
    file.write_bytes(bytes(content))
    with pytest.raises(BenchmarkError, match=r"table\.npz is damaged: array 'numbers' cannot be read: "):
        read_array(file, "numbers")


class Hostile:
    """Creates a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_within_an_array_is_not_run(tmp_path: Path) -> None:
    np.savez(tmp_path / "table.npz", numbers=np.asarray([Hostile(tmp_path / "touched")], dtype=object))
    with pytest.raises(BenchmarkError, match=r"array 'numbers' cannot be read: Object arrays cannot be loaded"):
        read_array(tmp_path / "table.npz", "numbers")
    assert not (tmp_path / "touched").exists()


def test_an_oversized_array_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_BYTES", 1000)
    with pytest.raises(BenchmarkError, match=r"an array has at most 1,000 bytes, got 4,128$"):
        read_array(file, "numbers")
