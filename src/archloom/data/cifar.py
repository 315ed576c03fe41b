"""CIFAR-10 and CIFAR-100 as their authors publish them: python pickles or plain binary records (Krizhevsky, 2009).

A pickle can name any function for its reader to call, and a crafted state of numpy's own types reads and writes memory
anywhere. So the few names that an array needs, old (`numpy.core`) and new (`numpy._core`), get stand-ins that accept a
shape, a kind of number and bytes; every other name is refused.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
import torch

from archloom.core.errors import DataError
from archloom.data.augment import Augment
from archloom.data.source import ImageData, InMemory, locate

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
AUGMENT = Augment(crop_padding=4, flip=True)

Part = tuple[np.ndarray[Any, Any], list[int]]  # bytes [n, 3072] and their labels


def cifar10(directory: Path | None) -> ImageData:
    """Load 60,000 colour images of 32x32 pixels in 10 classes."""
    mean, std = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)  # of bytes, as NAS-Bench-201 has them
    return _load("cifar10", directory, CIFAR10, mean, std)


def cifar100(directory: Path | None) -> ImageData:
    """Load 60,000 colour images of 32x32 pixels in 100 classes."""
    mean, std = (129.3, 124.1, 112.4), (68.2, 65.4, 70.4)
    return _load("cifar100", directory, CIFAR100, mean, std)


# --- layouts


@dataclass(frozen=True)
class Layout:
    """How one published archive names and writes its files."""

    folder: str
    train: tuple[str, ...]
    test: str
    names: str  # the file of class names
    read: Callable[[Path], Part]
    read_names: Callable[[Path], tuple[str, ...]]

    @property
    def files(self) -> tuple[str, ...]:
        """Return the names of all files of the layout."""
        return (*self.train, self.test, self.names)


def _load(
    name: str, directory: Path | None, layouts: tuple[Layout, ...], mean: tuple[float, ...], std: tuple[float, ...]
) -> ImageData:
    folder, layout = _find(name, directory, layouts)
    missing = [file for file in layout.files if not (folder / file).is_file()]
    if missing:
        raise DataError(f"'{folder}' must hold {layout.files[0]} .. {layout.names}; '{missing[0]}' is missing")
    return ImageData(
        name=name,
        train=_source(folder, layout.train, layout),
        classes=layout.read_names(folder / layout.names),
        test=_source(folder, (layout.test,), layout),
        mean=tuple(value / 255 for value in mean),
        std=tuple(value / 255 for value in std),
        augment=AUGMENT,
    )


def _find(name: str, directory: Path | None, layouts: tuple[Layout, ...]) -> tuple[Path, Layout]:
    """Return the folder of the first layout found: the directory itself, inside it, or inside its sub-folder `name`."""
    root = locate(name, directory)
    for layout in layouts:
        for base in (root, root / name):
            for folder in (base / layout.folder, base):
                if any((folder / file).is_file() for file in layout.files):
                    return folder, layout
    wanted = " or ".join(f"'{layout.folder}'" for layout in layouts)
    raise DataError(f"data set '{name}' must be unpacked as {wanted} in '{root}'; found neither")


def _source(folder: Path, files: tuple[str, ...], layout: Layout) -> InMemory:
    parts = [layout.read(folder / file) for file in files]
    images = torch.from_numpy(np.concatenate([images for images, _ in parts])).view(-1, *SHAPE)
    labels = torch.tensor([label for _, part in parts for label in part], dtype=torch.int64)
    return InMemory(images, labels)


# --- python layout


def _stand_ins(most_bytes: int) -> dict[tuple[str, str], Any]:
    """Return what the names in a file of `most_bytes` stand for: values that hold bytes, and nothing of numpy's.

    They are made anew for every file, because a pickle can set attributes on whatever it names.
    """
    left = most_bytes  # a file can encode one text many times; what it holds once fits into its own size

    class Kind:
        """Replace numpy.dtype: `u1` or `i8`."""

        def __init__(self, name: object, *_: object) -> None:
            self.bytes = {"u1": 1, "|u1": 1, "i8": 8, "<i8": 8}[str(_text(name))]

        def __setstate__(self, state: object) -> None:
            if not (isinstance(state, tuple) and len(state) > 1 and _text(state[1]) in ("|", "<")):
                raise ValueError(f"the order of bytes must be little-endian, got {state!r}")

    class Array:
        """Replace numpy.ndarray: a shape and its bytes."""

        shape: tuple[int, ...] = ()
        raw: bytes | bytearray = b""

        def __setstate__(self, state: tuple[Any, ...]) -> None:
            _, shape, kind, is_fortran, raw = state
            self.fill(raw, kind, shape, is_fortran)

        def fill(self, raw: Any, kind: Any, shape: Any, is_fortran: Any) -> None:
            fits = type(shape) is tuple and all(type(side) is int and side >= 0 for side in shape)
            if not fits or type(raw) not in (bytes, bytearray) or not isinstance(kind, Kind) or is_fortran:
                raise ValueError("an array must be a shape, a kind of number and bytes in C order")
            if math.prod(shape) * kind.bytes != len(raw):
                raise ValueError(f"an array of the shape {shape} must have as many bytes, got {len(raw)}")
            self.shape, self.raw, self.bytes_each = shape, raw, kind.bytes

        def to_numpy(self) -> np.ndarray[Any, Any]:
            return np.frombuffer(self.raw, np.uint8 if self.bytes_each == 1 else np.int64).reshape(self.shape)

    def reconstruct(*_: object) -> Array:
        return Array()

    def from_buffer(raw: object, kind: object, shape: object, order: object) -> Array:
        array = Array()
        array.fill(raw, kind, shape, order != "C")
        return array

    def scalar(kind: Kind, raw: bytes) -> int:
        return int.from_bytes(raw[: kind.bytes], "little", signed=kind.bytes > 1)

    def encode(text: object, encoding: object) -> bytes:
        nonlocal left
        if type(text) is not str or _text(encoding) != "latin1":
            raise ValueError(f"bytes must be written as text in latin1, got {encoding!r}")
        left -= len(text)
        if left < 0:
            raise ValueError("it unfolds to more bytes than the file has")
        return text.encode("latin1")

    functions = {("multiarray", "_reconstruct"): reconstruct, ("multiarray", "scalar"): scalar}
    functions[("numeric", "_frombuffer")] = from_buffer
    named: dict[tuple[str, str], Any] = {
        (f"numpy.{core}.{module}", name): function
        for (module, name), function in functions.items()
        for core in ("core", "_core")
    }
    return {**named, ("numpy", "ndarray"): Array, ("numpy", "dtype"): Kind, ("_codecs", "encode"): encode}


class _ArraysOnly(pickle.Unpickler):
    """Read plain Python values, and arrays by stand-ins; refuse every other name."""

    def __init__(self, file: BinaryIO, *, most_bytes: int) -> None:
        super().__init__(file, encoding="bytes")
        self._stand_ins = _stand_ins(most_bytes)

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._stand_ins[module, name]
        except KeyError:
            raise DataError(f"names '{module}.{name}', which no CIFAR file needs; it was not run") from None


def _unpickle(path: Path) -> dict[str, Any]:  # Any: what a file holds, checked where it is used
    try:
        with path.open("rb") as file:
            content = _ArraysOnly(file, most_bytes=path.stat().st_size).load()
    except DataError as error:
        raise DataError(f"'{path}' {error}") from error
    except Exception as error:  # a damaged pickle may raise nearly anything
        raise DataError(f"'{path}' is damaged and cannot be read: {error}") from error
    if not isinstance(content, dict):
        _refuse(path, "a dictionary", content)
    return {_text(key): _to_array(path, value) for key, value in content.items()}


def _to_array(path: Path, value: Any) -> Any:
    """Return the array of a stand-in, and any other value as it is."""
    if not hasattr(value, "to_numpy"):
        return value
    if not value.shape:
        _refuse(path, "arrays with a shape", value)
    return value.to_numpy()


def _refuse(path: Path, wanted: str, got: object) -> NoReturn:
    raise DataError(f"'{path}' must hold {wanted}, got {type(got).__name__}")


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _python_part(label_key: str) -> Callable[[Path], Part]:
    def read(path: Path) -> Part:
        content = _unpickle(path)
        images, labels = content.get("data"), content.get(label_key)
        if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (PIXELS,):
            _refuse(path, f"'data', bytes of the shape [n, {PIXELS}]", images)
        if not isinstance(labels, list) or not all(type(label) is int for label in labels):
            _refuse(path, f"'{label_key}', a list of integers", labels)
        if len(images) != len(labels):
            raise DataError(f"'{path}' must have a label per image, got {len(labels)} for {len(images)}")
        return images, labels

    return read


def _python_names(key: str) -> Callable[[Path], tuple[str, ...]]:
    def read(path: Path) -> tuple[str, ...]:
        names = _unpickle(path).get(key)
        if not isinstance(names, list):
            _refuse(path, f"'{key}', a list of class names", names)
        return tuple(_text(name) for name in names)

    return read


# --- binary layout


def _binary_part(label_bytes: int) -> Callable[[Path], Part]:
    """Read records of `label_bytes` (the last one is the label) and the pixels."""

    def read(path: Path) -> Part:
        content = np.fromfile(path, dtype=np.uint8)
        record = label_bytes + PIXELS
        if len(content) == 0 or len(content) % record:
            raise DataError(f"'{path}' must be whole records of {record} bytes, got {len(content)}; is it damaged?")
        records = content.reshape(-1, record)
        return records[:, label_bytes:], records[:, label_bytes - 1].tolist()

    return read


def _binary_names(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text(encoding="utf-8", errors="replace").split())


_TEN = tuple(f"data_batch_{number}" for number in range(1, 6))

CIFAR10 = (
    Layout(
        "cifar-10-batches-py", _TEN, "test_batch", "batches.meta", _python_part("labels"), _python_names("label_names")
    ),
    Layout(
        "cifar-10-batches-bin",
        tuple(f"{name}.bin" for name in _TEN),
        "test_batch.bin",
        "batches.meta.txt",
        _binary_part(1),
        _binary_names,
    ),
)

CIFAR100 = (
    Layout(
        "cifar-100-python", ("train",), "test", "meta", _python_part("fine_labels"), _python_names("fine_label_names")
    ),
    Layout("cifar-100-binary", ("train.bin",), "test.bin", "fine_label_names.txt", _binary_part(2), _binary_names),
)
