"""CIFAR-10 and CIFAR-100 as their authors publish them: python pickles or plain binary records (Krizhevsky, 2009).

A pickle can name any function for its reader to call, so the python layout is read with a table of the few names that
a numpy array needs, old (`numpy.core`) and new (`numpy._core`); every other name is refused.
"""

from __future__ import annotations

import codecs
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

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


def _reconstruction() -> dict[tuple[str, str], Any]:
    """Return the names that pickled numpy arrays use, and what they stand for in the numpy that is installed."""
    array, number = np.zeros(1, np.uint8), np.int64(0)
    functions: dict[tuple[str, str], Any] = {
        ("multiarray", "_reconstruct"): array.__reduce__()[0],
        ("multiarray", "scalar"): number.__reduce__()[0],
        ("numeric", "_frombuffer"): array.__reduce_ex__(5)[0],
    }
    allowed: dict[tuple[str, str], Any] = {
        (f"numpy.{core}.{module}", name): function
        for (module, name), function in functions.items()
        for core in ("core", "_core")
    }
    types = {("numpy", "ndarray"): np.ndarray, ("numpy", "dtype"): np.dtype, ("_codecs", "encode"): codecs.encode}
    return {**allowed, **types}


class _ArraysOnly(pickle.Unpickler):
    """Reads plain Python values and numpy arrays."""

    allowed = _reconstruction()

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.allowed[module, name]
        except KeyError:
            raise DataError(f"names '{module}.{name}', which no CIFAR file needs; it was not run") from None


def _unpickle(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = _ArraysOnly(file, encoding="bytes").load()
    except DataError as error:
        raise DataError(f"'{path}' {error}") from error
    except Exception as error:  # a damaged pickle may raise nearly anything
        raise DataError(f"'{path}' is damaged and cannot be read: {error}") from error
    if not isinstance(content, dict):
        _refuse(path, "a dictionary", content)
    return {_text(key): value for key, value in content.items()}


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
