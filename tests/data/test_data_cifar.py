"""CIFAR in small: files of the published layouts with a few images each."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from archloom.core.errors import DataError
from archloom.data.augment import Augment
from archloom.data.cifar import cifar10, cifar100

PER_FILE = 10  # one image of each class
Pixels = np.ndarray[Any, Any]


def pixels(seed: int, count: int = PER_FILE) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def pickled(path: Path, content: object, protocol: int = 4) -> None:
    path.write_bytes(pickle.dumps(content, protocol=protocol))


BATCHES = [f"data_batch_{number}" for number in range(1, 6)]


def write_python10(root: Path, protocol: int = 4) -> Path:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for seed, name in enumerate([*BATCHES, "test_batch"]):
        pickled(folder / name, {b"data": pixels(seed), b"labels": list(range(10))}, protocol)
    pickled(folder / "batches.meta", {b"label_names": [f"class{i}".encode() for i in range(10)]}, protocol)
    return folder


def write_binary10(root: Path) -> Path:
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for seed, name in enumerate([*BATCHES, "test_batch"]):
        records = np.concatenate([np.arange(10, dtype=np.uint8)[:, None], pixels(seed)], axis=1)
        records.tofile(folder / f"{name}.bin")
    (folder / "batches.meta.txt").write_text("\n".join(f"class{i}" for i in range(10)) + "\n\n")
    return folder


def write_python100(root: Path) -> Path:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for seed, name in enumerate(["train", "test"]):
        content = {"data": pixels(seed, 100), "fine_labels": list(range(100)), "coarse_labels": [0] * 100}
        pickled(folder / name, content)
    pickled(folder / "meta", {"fine_label_names": [f"fine{i}" for i in range(100)]})
    return folder


def write_binary100(root: Path) -> Path:
    folder = root / "cifar-100-binary"
    folder.mkdir(parents=True)
    for seed, name in enumerate(["train", "test"]):
        labels = np.stack([np.full(100, 255, np.uint8), np.arange(100, dtype=np.uint8)], axis=1)
        np.concatenate([labels, pixels(seed, 100)], axis=1).tofile(folder / f"{name}.bin")
    (folder / "fine_label_names.txt").write_text("\n".join(f"fine{i}" for i in range(100)))
    return folder


# --- reading


@pytest.mark.parametrize("write", [write_python10, write_binary10])
def test_cifar10_reads_both_layouts(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    write(tmp_path)
    data = cifar10(tmp_path).check()
    assert len(data.train) == 50
    assert data.train.shape == (3, 32, 32)
    assert data.classes == tuple(f"class{i}" for i in range(10))
    second_file = data.train.fetch(torch.tensor([PER_FILE]))
    assert torch.equal(second_file.flatten(), torch.from_numpy(pixels(1)[0]))
    assert data.train.labels.tolist() == list(range(10)) * 5
    assert data.test is not None
    assert torch.equal(data.test.fetch(torch.arange(10)).view(10, -1), torch.from_numpy(pixels(5)))
    assert data.augment == Augment(crop_padding=4, flip=True)


@pytest.mark.parametrize("write", [write_python100, write_binary100])
def test_cifar100_reads_fine_labels_from_both_layouts(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    write(tmp_path)
    data = cifar100(tmp_path).check()
    assert data.classes[99] == "fine99"
    assert data.train.labels.tolist() == list(range(100))
    assert torch.equal(data.train.fetch(torch.tensor([7])).flatten(), torch.from_numpy(pixels(0, 100)[7]))


@pytest.mark.parametrize("place", ["", "cifar10"])
def test_the_folder_is_found_in_its_parent_and_below_the_name(tmp_path: Path, place: str) -> None:
    write_python10(tmp_path / place)
    assert len(cifar10(tmp_path).train) == 50


def test_the_folder_itself_may_be_given_under_any_name(tmp_path: Path) -> None:
    renamed = write_python10(tmp_path).rename(tmp_path / "pictures")
    assert len(cifar10(renamed).train) == 50


@pytest.mark.parametrize("protocol", [2, 3, 5])
def test_arrays_of_every_pickle_protocol_are_read(tmp_path: Path, protocol: int) -> None:
    write_python10(tmp_path, protocol)
    assert torch.equal(cifar10(tmp_path).train.fetch(torch.tensor([0])).flatten(), torch.from_numpy(pixels(0)[0]))


def python2_pickle(images: Pixels, labels: list[int]) -> bytes:
    """What Python 2 wrote: protocol 2, names under numpy.core, byte strings for text and pixels."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    dtype = (
        b"cnumpy\ndtype\n"
        + text(b"u1")
        + b"K\x00K\x01\x87R(K\x03"
        + text(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    shape = b"K" + bytes([images.shape[0]]) + b"M" + struct.pack("<H", images.shape[1]) + b"\x86"
    state = b"(K\x01" + shape + dtype + b"\x89" + text(images.tobytes()) + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + empty + state + text(b"labels") + numbers + b"u."


def test_pickles_of_python_2_are_read(tmp_path: Path) -> None:
    folder = write_python10(tmp_path)
    images = pixels(42)
    (folder / "data_batch_1").write_bytes(python2_pickle(images, list(range(10))))
    data = cifar10(tmp_path)
    assert torch.equal(data.train.fetch(torch.arange(10)).view(10, -1), torch.from_numpy(images))


def test_real_cifar10_has_its_published_mean(cifar10_dir: Path) -> None:
    data = cifar10(cifar10_dir).check()
    assert data.test is not None
    assert (len(data.train), len(data.test)) == (50_000, 10_000)
    assert torch.bincount(data.train.labels).tolist() == [5000] * 10
    sample = data.train.fetch(torch.arange(50_000)).to(torch.float32)
    assert (sample.mean(dim=(0, 2, 3)) / 255).tolist() == pytest.approx(data.mean, abs=1e-3)
    assert data.classes[:2] == ("airplane", "automobile")


# --- refusing


class Hostile:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call


def touch(path: str) -> None:
    Path(path).touch()


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_cannot_run_code(tmp_path: Path, protocol: int) -> None:
    folder = write_python10(tmp_path)
    mark = tmp_path / "was_here"
    pickled(folder / "data_batch_2", {b"data": Hostile(touch, str(mark)), b"labels": []}, protocol)
    with pytest.raises(DataError, match=r"data_batch_2' names '.*touch', which no CIFAR file needs; it was not run"):
        cifar10(tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize("module, name", [("os", "system"), ("builtins", "eval"), ("numpy", "load"), ("numpy", "save")])
def test_other_names_are_refused_even_from_numpy(tmp_path: Path, module: str, name: str) -> None:
    folder = write_python10(tmp_path)
    (folder / "batches.meta").write_bytes(f"c{module}\n{name}\n(S'1'\ntR.".encode())
    with pytest.raises(DataError, match=rf"batches\.meta' names '{module}\.{name}'"):
        cifar10(tmp_path)


class OfNumpy:
    """Pickles as a call of one of the names that arrays need, with a state of the test's choosing."""

    def __init__(self, module: str, name: str, *arguments: Any, state: Any = None) -> None:
        self.module, self.name, self.arguments, self.state = module, name, arguments, state

    def dump(self) -> bytes:
        """Return the opcodes of `module.name(*arguments)`, and of setting the state if there is one."""
        call = f"c{self.module}\n{self.name}\n".encode() + _body(self.arguments) + b"R"
        return call if self.state is None else call + _body(self.state) + b"b"


def _body(value: Any) -> bytes:
    if isinstance(value, OfNumpy):
        return value.dump()
    if isinstance(value, tuple):
        return b"(" + b"".join(map(_body, value)) + b"t"
    return pickle.dumps(value, protocol=2)[2:-1]  # without the header and the final dot


def kind(name: str = "u1", order: str = "|") -> OfNumpy:
    return OfNumpy("numpy", "dtype", name, 0, 1, state=(3, order, None, None, None, -1, -1, 0))


def array(*state: Any) -> OfNumpy:
    return OfNumpy("numpy.core.multiarray", "_reconstruct", OfType("numpy", "ndarray"), (0,), b"b", state=state)


class OfType(OfNumpy):
    def dump(self) -> bytes:
        return f"c{self.module}\n{self.name}\n".encode()


def write_batch(path: Path, data: OfNumpy) -> None:
    path.write_bytes(b"\x80\x02}(" + _body(b"data") + data.dump() + _body(b"labels") + _body([]) + b"u.")


GOOD = bytes(3072)


@pytest.mark.parametrize(
    "data, message",
    [
        (array(1, (1, 3072), kind("O"), False, GOOD), "'O'"),  # objects: bytes would be taken for addresses
        (array(1, (1, 3072), kind("u1", ">"), False, GOOD), "little-endian"),
        (array(1, (1, 3072), kind(), True, GOOD), "in C order"),
        (array(1, (2**40, 3072), kind(), False, GOOD), "as many bytes, got 3072"),
        (array(1, (-1, -3072), kind(), False, GOOD), "an array must be a shape"),
        (array(1, (1, 3072), "u1", False, GOOD), "a kind of number"),
        (array(1, (1, 3072), kind(), False, ["a", "b"]), "an array must be a shape"),
        (OfNumpy("_codecs", "encode", "00", "hex"), "latin1"),
        (OfNumpy("numpy", "ndarray"), "arrays with a shape"),
    ],
)
def test_a_crafted_array_is_refused_in_one_line(tmp_path: Path, data: OfNumpy, message: str) -> None:
    folder = write_python10(tmp_path)
    write_batch(folder / "data_batch_1", data)
    with pytest.raises(DataError, match="data_batch_1'") as caught:
        cifar10(tmp_path)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_one_text_encoded_many_times_does_not_fill_the_memory(tmp_path: Path) -> None:
    folder = write_python10(tmp_path)
    text = b"X" + (10_000).to_bytes(4, "little") + b"a" * 10_000 + b"q\x09"  # kept in the memo
    again = b"c_codecs\nencode\n(h\x09" + _body("latin1") + b"tR"
    (folder / "data_batch_1").write_bytes(b"\x80\x02(" + text + 1000 * again + b"l.")
    with pytest.raises(DataError, match="unfolds to more bytes than the file has"):
        cifar10(tmp_path)


def test_what_one_file_sets_on_a_name_does_not_reach_the_next_file(tmp_path: Path) -> None:
    folder = write_python10(tmp_path)
    change = b"c_codecs\nencode\n(N}" + _body("__code__") + b"Nst" + b"b"  # as the state (None, {"__code__": None})
    (folder / "batches.meta").write_bytes(b"\x80\x02" + change + b".")
    with pytest.raises(DataError, match=r"batches\.meta'"):
        cifar10(tmp_path)
    pickled(folder / "batches.meta", {b"label_names": [b"a"] * 10})
    assert len(cifar10(tmp_path).train) == 5 * PER_FILE


@pytest.mark.parametrize("keep", [0, 1, 100, 5000])
def test_a_truncated_pickle_is_named(tmp_path: Path, keep: int) -> None:
    file = write_python10(tmp_path) / "data_batch_3"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"data_batch_3' is damaged and cannot be read"):
        cifar10(tmp_path)


@pytest.mark.parametrize("change", [-1, 1])
def test_a_truncated_binary_file_is_named(tmp_path: Path, change: int) -> None:
    file = write_binary10(tmp_path) / "test_batch.bin"
    content = file.read_bytes() + b"x"
    file.write_bytes(content[: len(content) - 1 + change])
    with pytest.raises(DataError, match=r"test_batch\.bin' must be whole records of 3073 bytes"):
        cifar10(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "must hold a dictionary, got list"),
        ({"labels": [0]}, r"must hold 'data', bytes of the shape \[n, 3072\], got NoneType"),
        ({"data": np.zeros((1, 10), np.uint8), "labels": [0]}, "must hold 'data'"),
        ({"data": np.zeros((1, 3072), np.int64), "labels": [0]}, "must hold 'data'"),
        ({"data": np.zeros((1, 3072), np.uint8)}, "must hold 'labels', a list of integers, got NoneType"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": ["cat"]}, "must hold 'labels', a list of integers"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": [0, 1]}, "a label per image, got 2 for 1"),
    ],
)
def test_a_batch_of_other_content_is_refused(tmp_path: Path, content: object, message: str) -> None:
    folder = write_python10(tmp_path)
    pickled(folder / "data_batch_1", content)
    with pytest.raises(DataError, match=message):
        cifar10(tmp_path)


def test_class_names_must_be_a_list(tmp_path: Path) -> None:
    folder = write_python10(tmp_path)
    pickled(folder / "batches.meta", {"label_names": 10})
    with pytest.raises(DataError, match="must hold 'label_names', a list of class names, got int"):
        cifar10(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (write_python10(tmp_path) / "data_batch_4").unlink()
    with pytest.raises(DataError, match="'data_batch_4' is missing"):
        cifar10(tmp_path)


def test_a_folder_without_cifar_says_what_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'cifar100' must be unpacked as 'cifar-100-python' or 'cifar-100-binary' in"):
        cifar100(tmp_path)


def test_no_folder_at_all_says_how_to_give_one() -> None:
    with pytest.raises(DataError, match="'cifar10' needs a data folder; give --data-dir or set ARCHLOOM_DATA"):
        cifar10(None)
