"""Files of arrays: only what is asked for is read, and nothing that is no array of plain numbers."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from archloom.core.errors import DataError
from archloom.data import npz_file
from archloom.data.arrays import npz
from archloom.data.npz_file import read_npz

IMAGES = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4)


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def write(path: Path, *, method: int = zipfile.ZIP_DEFLATED, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read_npz(path, ["images"])
    message = str(caught.value)
    assert "\n" not in message and message.startswith(f"'{path}' is not a readable .npz file of plain arrays: ")
    return message.split("plain arrays: ")[1]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("array", [IMAGES, np.asfortranarray(IMAGES), IMAGES.astype(">f4"), np.zeros((0, 3), np.int8)])
def test_arrays_come_back_as_numpy_reads_them(tmp_path: Path, save: Any, array: Any) -> None:
    save(tmp_path / "a.npz", images=array, other=IMAGES)
    arrays, names = read_npz(tmp_path / "a.npz", ["images", "absent"])
    assert list(arrays) == ["images"] and names == ["images", "other"]
    assert arrays["images"].dtype == array.dtype and arrays["images"].shape == array.shape
    assert np.array_equal(arrays["images"], array)


def test_what_is_not_needed_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", images=npy(IMAGES), rest=npy(np.array([{"code": 1}], dtype=object)))
    assert list(read_npz(path, ["images"])[0]) == ["images"]


def test_objects_and_texts_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", images=npy(np.array([{"a": 1}], dtype=object)))
    assert refusal(path) == "'images' must hold whole numbers or floats, got object"
    path = write(tmp_path / "a.npz", images=npy(np.array(["text"])))
    assert refusal(path) == "'images' must hold whole numbers or floats, got <U4"


def test_members_that_are_no_arrays_are_refused(tmp_path: Path) -> None:
    assert refusal(write(tmp_path / "a.npz", images=b"nothing")) == "'images' is no array"
    assert refusal(write(tmp_path / "a.npz", images=b"")) == "'images' is no array"


def test_an_array_that_ends_early_is_refused(tmp_path: Path) -> None:
    assert refusal(write(tmp_path / "a.npz", images=npy(IMAGES)[:-1])) == (
        "'images' ends early: its header says 96 bytes"
    )


def test_an_unknown_compression_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", method=zipfile.ZIP_BZIP2, images=npy(IMAGES))
    assert refusal(path) == "'images' is compressed by an unknown method (12)"


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    data = bytearray(write(tmp_path / "a.npz", method=zipfile.ZIP_STORED, images=npy(IMAGES)).read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + place] |= 1
    (tmp_path / "a.npz").write_bytes(data)
    assert refusal(tmp_path / "a.npz") == "'images' is encrypted"


def test_an_array_larger_than_the_memory_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npz_file, "available_memory", lambda: 100 * 2**20)
    header = npy(np.zeros((0, 3), np.uint8)).replace(b"(0, 3), }    ", b"(99999999, 3), }")
    assert refusal(write(tmp_path / "a.npz", images=header[:128])).startswith("'images' has 286 MiB")
    zeros = npy(np.zeros(41 * 2**20, np.uint8))
    assert refusal(write(tmp_path / "a.npz", images=zeros)).startswith("'images' has 41 MiB, more than 40 %")
    monkeypatch.setattr(npz_file, "available_memory", lambda: None)
    assert read_npz(tmp_path / "a.npz", ["images"])[0]["images"].nbytes == 41 * 2**20


@pytest.mark.parametrize("content", [b"", b"PK", npy(IMAGES)])
def test_what_is_no_zip_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    assert refusal(tmp_path / "a.npz") == "it is no zip file; write images and labels with numpy.savez"


def test_a_data_set_names_what_its_file_has(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", pixels=IMAGES)
    with pytest.raises(DataError, match="got pixels"):
        npz(tmp_path)
