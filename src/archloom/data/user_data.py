"""Data that Python code passes: arrays, lists, torch Datasets and DataLoaders become an ImageData, or a true reason.

A search splits the training images and draws its own batches, so it needs images by their number: whatever can only be
read from front to back is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from archloom.core.errors import DataError, SettingError, one_line
from archloom.data.arrays import TEST_NAMES, TRAIN_NAMES, from_dataset, from_tensors
from archloom.data.facts import DataSet
from archloom.data.source import ImageData, to_channels_first

ACCEPTED = (
    "a name, a path, an ImageData, a TextData, a pair (images, labels) of tensors, arrays or lists, a pair of such "
    "pairs (training, test), a torch Dataset or a DataLoader of one"
)
COLOURS = (1, 3, 4)  # channels of usual images


def as_data_set(data: Any) -> DataSet | None:
    """Return the data of a user as a data set; None for a name or a path, which are loaded later.

    Raises:
        DataError: If no search can use them; the message says why.
        SettingError: If they are nothing of the kind.
    """
    if data is None or isinstance(data, str | Path):
        return None
    if isinstance(data, DataSet):
        return data.check()
    if isinstance(data, Mapping):
        return _from_mapping(data)
    if isinstance(data, DataLoader):
        return as_data_set(_dataset_of(data))
    if isinstance(data, IterableDataset):
        raise DataError(
            "data must give images by their number, got an IterableDataset, which only goes from front to back; "
            "pass a map-style Dataset (with __len__ and __getitem__)"
        )
    if _is_pair(data):
        return _from_pair(*data)
    if isinstance(data, tuple | list) and len(data) == 2 and all(map(_is_pair, data)):
        (images, labels), test = data
        return _from_pair(images, labels, test=test)
    if isinstance(data, tuple | list) and data and isinstance(data[0], Tensor | np.ndarray):
        raise DataError(f"data must be a pair (images, labels), got {len(data)} entries, the first one an array")
    if isinstance(data, Tensor | np.ndarray):
        raise DataError(f"data must have labels, too: pass a pair (images, labels), got one {type(data).__name__}")
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return _from_dataset(data)
    raise SettingError(f"data must be {ACCEPTED}, got {type(data).__name__}")


def _dataset_of(loader: DataLoader[Any]) -> Any:
    """Return what a loader loads: batches, their order and augmentation follow from the seed of a run instead."""
    if loader.dataset is None or isinstance(loader.dataset, DataLoader):
        raise DataError("the DataLoader has no Dataset; pass the Dataset itself")
    return loader.dataset


def _from_dataset(dataset: Any) -> ImageData:
    if len(dataset) and isinstance(_first(dataset), Mapping):
        names = ", ".join(map(str, _first(dataset)))
        raise DataError(
            f"a Dataset must give pairs (image, label), item 0 is a mapping of {one_line(names)}; save a Hugging Face "
            "data set with save_to_disk and pass the path of the folder"
        )
    return from_dataset(dataset).check()


def _first(dataset: Any) -> Any:
    try:
        return dataset[0]
    except Exception as error:  # a user's own code may fail in any way
        raise DataError(f"item 0 of the data cannot be read: {type(error).__name__}: {one_line(error)}") from error


# --- arrays and lists


def _is_pair(data: Any) -> bool:
    """Return whether data are (images, labels), each with an entry per image."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        return False
    images, labels = data
    sized = all(isinstance(part, Tensor | np.ndarray | list | tuple) and len(part) > 0 for part in data)
    return sized and not _is_label(images[0]) and _is_label(labels[0])


def _is_label(value: Any) -> bool:
    """Return whether a value is no image: a number, a name, or one number in an array."""
    if isinstance(value, Tensor | np.ndarray):
        return value.ndim <= 1 and _count_entries(value) == 1
    return isinstance(value, int | float | str | np.generic)


def _count_entries(value: Tensor | np.ndarray[Any, Any]) -> int:
    """Return the number of entries."""
    return value.numel() if isinstance(value, Tensor) else int(value.size)


def _from_pair(images: Any, labels: Any, *, test: Any = None) -> ImageData:
    numbers, classes = _number_labels(labels)
    held = None
    if test is not None:
        known = None if classes is None else {name: number for number, name in enumerate(classes)}
        held = (_as_images(test[0]), _number_labels(test[1], known)[0])
    return from_tensors(_as_images(images), numbers, test=held, classes=classes).check()


def _from_mapping(data: Mapping[str, Any]) -> ImageData:
    """Return data by the names that .npz files have."""
    train = next((pair for pair in TRAIN_NAMES if all(name in data for name in pair)), None)
    if train is None:
        wanted = " or ".join(f"'{images}' and '{labels}'" for images, labels in TRAIN_NAMES)
        raise DataError(f"a mapping of data must hold {wanted}, got {one_line(', '.join(map(str, data))) or 'nothing'}")
    held = next((pair for pair in TEST_NAMES if all(name in data for name in pair)), None)
    return _from_pair(data[train[0]], data[train[1]], test=None if held is None else (data[held[0]], data[held[1]]))


def _as_images(images: Any) -> Tensor:
    """Return images as [n, C, H, W]: channels may come last in arrays, and in tensors where it is plain to see."""
    if isinstance(images, Tensor):
        is_last = images.ndim == 4 and images.shape[3] in COLOURS and images.shape[1] not in COLOURS
        return images.permute(0, 3, 1, 2) if is_last else images[:, None] if images.ndim == 3 else images
    if isinstance(images, list | tuple):
        images = _stack(images)
    return to_channels_first(images)


def _stack(images: Sequence[Any]) -> np.ndarray[Any, Any]:
    arrays = [np.asarray(image) for image in images]
    shapes = list(dict.fromkeys(array.shape for array in arrays))
    if len(shapes) > 1:
        raise DataError(f"images must have one shape, got {list(shapes[0])} and {list(shapes[1])}; resize them first")
    stacked = np.stack(arrays)
    return stacked.astype(np.float32) if stacked.dtype == np.float64 else stacked


def _number_labels(labels: Any, known: Mapping[str, int] | None = None) -> tuple[Tensor, list[str] | None]:
    """Return labels as numbers, and the names of the classes where labels are names."""
    if isinstance(labels, Tensor):
        return labels.flatten() if labels.ndim == 2 and labels.shape[1] == 1 else labels, None
    array = np.asarray(labels)
    if array.ndim == 2 and array.shape[1] == 1:  # as Keras gives CIFAR's
        array = array[:, 0]
    if array.dtype.kind not in "US":
        return torch.as_tensor(array), None
    names = sorted(set(map(str, array)))
    numbers = {name: number for number, name in enumerate(names)} if known is None else known
    strange = [name for name in names if name not in numbers]
    if strange:
        raise DataError(f"test labels must be classes of the training images, got '{strange[0]}'")
    return torch.tensor([numbers[str(name)] for name in array]), names
