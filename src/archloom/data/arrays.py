"""Data sets from what a user already has: tensors, a torch Dataset, or a numpy .npz file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from annotated_doc import Doc
from torch import Tensor

from archloom.core.errors import DataError, one_line
from archloom.data.augment import Augment
from archloom.data.npz_file import Arrays, read_npz
from archloom.data.source import (
    NO_AUGMENT,
    FromTorchDataset,
    ImageData,
    ImageDataset,
    InMemory,
    Source,
    locate,
    measure_statistics,
    to_channels_first,
)
from archloom.data.splits import hold_out

TRAIN_NAMES = (("images", "labels"), ("x_train", "y_train"))  # the second as Keras writes them
TEST_NAMES = (("test_images", "test_labels"), ("x_test", "y_test"))
CLASSES = "classes"
SHIFTED_SHARE = 8  # a training image may be shifted by an eighth of its side, as a folder's 32 pixels by 4


def from_tensors(
    images: Tensor,
    labels: Tensor,
    *,
    name: str = "tensors",
    test: tuple[Tensor, Tensor] | None = None,
    classes: Sequence[str] | None = None,
    augment: Augment = NO_AUGMENT,
) -> ImageData:
    """Return a data set of images [n, C, H, W], uint8 or float, and labels [n]; `test` is another such pair.

    Args:
        images: the training images.
        labels: their classes, counted from 0.
        name: the name of the data set.
        test: images and labels for the final test.
        classes: the names of the classes; numbers if left out.
        augment: random changes of training images.

    Returns:
        The data set, with mean and standard deviation of its channels.

    Raises:
        DataError: images and labels do not fit, or no search can use them.

    Examples:
        >>> import archloom, torch
        >>> archloom.from_tensors(torch.rand(8, 3, 4, 4), torch.arange(8) % 2, classes=["plain", "red"]).classes
        ('plain', 'red')
    """
    return _assemble(name, InMemory(images, labels), InMemory(*test) if test else None, classes, augment)


def from_dataset(
    train: ImageDataset,
    test: ImageDataset | None = None,
    *,
    name: str = "dataset",
    classes: Sequence[str] | None = None,
    augment: Augment = NO_AUGMENT,
) -> ImageData:
    """Return a data set of torch Datasets of (image, label), without random transforms: `augment` varies images."""
    held = FromTorchDataset(test) if test is not None else None
    return _assemble(name, FromTorchDataset(train), held, classes, augment)


def npz(
    directory: Path | None,
    *,
    path: Annotated[str, Doc("the .npz file in the data folder; left out: the only one there")] = "",
    test_fraction: Annotated[
        float, Doc("share of every class that is tested on, where the file has no test images")
    ] = 0.2,
    crop_padding: Annotated[
        int | None,
        Doc("augmentation: pixels by which a training image may be shifted; left out: an eighth of its side"),
    ] = None,
    flip: Annotated[bool, Doc("augmentation: left to right, one image in two; false for digits and text")] = True,
) -> ImageData:
    """Load a file of `images` and `labels`, or of `x_train`, `y_train`, `x_test`, `y_test` as Keras writes them.

    The file is `path`, or the only .npz of the data folder. Images are [n, H, W], [n, H, W, C] or [n, C, H, W], uint8
    or float. An array `classes` names the classes in the order of their numbers. Where the file has no test images, the
    last `test_fraction` of every class are held out.
    """
    file = _npz_file(directory, path)
    wanted = [name for pairs in (TRAIN_NAMES, TEST_NAMES) for pair in pairs for name in pair]
    arrays, names = read_npz(file, wanted, texts=(CLASSES,))
    try:
        data = _from_arrays(file.stem, arrays, names, test_fraction)
        shift = min(data.resolution) // SHIFTED_SHARE if crop_padding is None else crop_padding
        return replace(data, augment=Augment(crop_padding=shift, flip=flip))
    except DataError as error:
        raise DataError(f"'{file}': {error}") from error


def _npz_file(directory: Path | None, path: str) -> Path:
    place = locate("npz", directory, path)
    if place.is_dir():
        files = sorted(place.glob("*.npz"))
        if len(files) != 1:
            raise DataError(f"'{place}' must hold one .npz file, got {len(files)}; name one with data.path")
        return files[0]
    if not place.is_file():
        raise DataError(f"there is no file '{place}'")
    return place


def _from_arrays(name: str, content: Arrays, names: Sequence[str], test_fraction: float) -> ImageData:
    train = _find_pair(content, TRAIN_NAMES)
    if train is None:
        wanted = " or ".join(f"'{images}' and '{labels}'" for images, labels in TRAIN_NAMES)
        raise DataError(f"must hold {wanted}, got {one_line(', '.join(names)) if names else 'nothing'}")
    test = _find_pair(content, TEST_NAMES)
    if test is None:
        kept, held = hold_out(train.labels, fraction=test_fraction)
        test = InMemory(train.images[held], train.labels[held]) if len(held) else None
        train = InMemory(train.images[kept], train.labels[kept])
    return _assemble(name, train, test, _class_names(content.get(CLASSES), train.labels), NO_AUGMENT)


def _class_names(names: np.ndarray[Any, Any] | None, labels: Tensor) -> list[str] | None:
    """Return the names of the classes in a file, None where it has none."""
    if names is None:
        return None
    listed = [name.decode(errors="replace") if isinstance(name, bytes) else str(name) for name in names.ravel()]
    count = int(labels.max()) + 1
    if len(listed) != count or len(set(listed)) != count:
        raise DataError(f"'{CLASSES}' must hold a different name for each of {count} classes, got {len(listed)} names")
    return listed


def _find_pair(content: Arrays, pairs: Sequence[tuple[str, str]]) -> InMemory | None:
    for images, labels in pairs:
        if images in content and labels in content:
            return InMemory(to_channels_first(content[images]), _label_array(content[labels], labels))
    return None


def _label_array(labels: np.ndarray[Any, Any], name: str) -> Tensor:
    if labels.dtype.kind not in "iu":
        raise DataError(f"'{name}' must hold integers, got {labels.dtype}")
    if labels.ndim == 2 and labels.shape[1] == 1:  # as Keras gives CIFAR's
        labels = labels[:, 0]
    return torch.from_numpy(labels.astype(np.int64))


def _assemble(
    name: str, train: Source, test: Source | None, classes: Sequence[str] | None, augment: Augment
) -> ImageData:
    names = tuple(classes) if classes is not None else _number_classes(train.labels)
    mean, std = measure_statistics(train)
    data = ImageData(name=name, train=train, classes=names, test=test, mean=mean, std=std, augment=augment)
    return data.check()


def _number_classes(labels: Tensor) -> tuple[str, ...]:
    """Return classes named by their numbers."""
    highest = int(labels.max())
    if int(labels.min()) < 0 or highest >= len(labels):  # the second would mean empty classes, perhaps very many
        raise DataError(f"labels must count the classes from 0, got {int(labels.min())}..{highest}")
    return tuple(str(number) for number in range(highest + 1))
