"""Sources of images by index, and data sets made of them.

A search draws its batches by index from one part of the training images and validates on another, so a source answers
`fetch(indices)` and nothing more: memory, files and a user's own torch Dataset look alike to the loader.
"""

from __future__ import annotations

import math
import operator
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from archloom.core.errors import DataError
from archloom.core.files import exists, expand
from archloom.core.state import StateDict
from archloom.data.augment import Augment, to_units
from archloom.data.facts import DataSet, Facts, describe_missing_folder

Shape = tuple[int, int, int]  # C, H, W

SAMPLE = 1000  # images on which mean and std are measured: enough for two digits
NO_AUGMENT = Augment()
CHUNK = 100  # of them read at a time, so that large images do not fill the memory


class Source(ABC):
    """Images of one shape with their labels, read by index."""

    shape: Shape
    labels: Tensor  # int64 [n]

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def fetch(self, index: Tensor) -> Tensor:
        """Return uint8 (0..255) or float images [b, C, H, W] at int64 indices [b]; several threads may call it."""

    def pixels(self, index: Tensor) -> Tensor:
        """Return the same images as contiguous [b, H, W, C]: a row of an image is one stretch of memory."""
        return self.fetch(index).permute(0, 2, 3, 1).contiguous()


class InMemory(Source):
    """Images that fit in memory."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        if images.ndim != 4 or 0 in images.shape:
            raise DataError(f"images must have the shape [n, C, H, W], none of it 0, got {list(images.shape)}")
        _check_pixels(images, "images")
        # still [n, C, H, W], but arranged once for all the batches that ask for `pixels`
        self.images = images.contiguous(memory_format=torch.channels_last)
        self.labels = check_labels(labels, len(images))
        channels, height, width = images.shape[1:]
        self.shape = (channels, height, width)

    def fetch(self, index: Tensor) -> Tensor:
        """Return the images at the given positions as [b, C, H, W]."""
        return self.pixels(index).permute(0, 3, 1, 2).contiguous()

    def pixels(self, index: Tensor) -> Tensor:
        """Return the images at the given positions as [b, H, W, C]."""
        return self.images.permute(0, 2, 3, 1).index_select(0, index)


class ImageDataset(Protocol):
    """A map-style torch Dataset of (image, label)."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class FromTorchDataset(Source):
    """A torch Dataset of (image, label); an image is a tensor [C, H, W] or [H, W], a numpy array or a PIL image.

    Labels are read by going through the data set once; give `labels` where that is slow. The same index must always
    give the same image: Archloom augments by itself, so that a resumed run sees what an unbroken one would have.
    """

    def __init__(self, dataset: ImageDataset, *, labels: Sequence[int] | Tensor | None = None) -> None:
        if len(dataset) == 0:
            raise DataError("the torch Dataset is empty")
        self.dataset = dataset
        self._lock = threading.Lock()  # a user's Dataset need not be safe to read from several threads
        channels, height, width = self._image(0).shape
        self.shape = (channels, height, width)
        read = list(self._read_labels()) if labels is None else labels
        self.labels = check_labels(torch.as_tensor(read), len(dataset))

    def __getstate__(self) -> StateDict:
        return {name: value for name, value in vars(self).items() if name != "_lock"}  # a lock cannot be pickled

    def __setstate__(self, state: StateDict) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def fetch(self, index: Tensor) -> Tensor:
        """Return the images at the given positions, read one at a time under a lock."""
        with self._lock:
            images = [self._image(position) for position in index.tolist()]
        for position, image in zip(index.tolist(), images, strict=True):
            if tuple(image.shape) != self.shape:
                raise DataError(
                    f"images of a Dataset must have one shape: image 0 has {list(self.shape)}, "
                    f"image {position} has {list(image.shape)}; resize them in the Dataset"
                )
        return torch.stack(images)

    def _item(self, position: int) -> tuple[Any, Any]:
        item = self.dataset[position]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(f"a torch Dataset must give pairs (image, label), item {position} is {type(item).__name__}")
        return item[0], item[1]

    def _image(self, position: int) -> Tensor:
        return as_image(self._item(position)[0], f"image {position} of the Dataset")

    def _read_labels(self) -> Iterator[int]:
        for position in range(len(self.dataset)):
            label = self._item(position)[1]
            try:
                yield operator.index(label)  # unlike int(), does not cut 0.7 to 0
            except (TypeError, ValueError, RuntimeError) as error:
                raise DataError(f"label {position} of the Dataset must be an integer, got {label!r}") from error


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageData(DataSet):
    """A data set ready to be split: a search uses parts of `train`, and `test` is kept for the very end.

    Attributes:
        name: the name of the data set.
        train: images and labels for training; a search splits them.
        classes: the names of the classes.
        test: images and labels for the final test, if there are any.
        mean: mean of each channel; of uint8 images after division by 255.
        std: standard deviation of each channel.
        augment: the usual augmentation of this data set.

    Examples:
        >>> import archloom, torch
        >>> data = archloom.from_tensors(torch.rand(8, 3, 4, 4), torch.arange(8) % 2)
        >>> data.channels, data.resolution, len(data.classes)
        (3, (4, 4), 2)
    """

    name: str
    train: Source
    classes: tuple[str, ...]
    test: Source | None = None
    mean: tuple[float, ...]  # per channel; of uint8 images after division by 255
    std: tuple[float, ...]
    augment: Augment = NO_AUGMENT  # what is usual for this data set

    @property
    def channels(self) -> int:
        """Return the number of channels of an image."""
        return self.train.shape[0]

    @property
    def resolution(self) -> tuple[int, int]:
        """Return height and width."""
        return self.train.shape[1:]

    @property
    def amount(self) -> int:
        """Return the number of pixels of all training images."""
        return len(self.train) * math.prod(self.resolution)

    @property
    def side(self) -> int:
        """Return the shorter side of an image."""
        return min(self.resolution)

    @property
    def facts(self) -> Facts:
        """Return what the size of a network depends on."""
        return Facts(len(self.classes), self.train.shape)

    def check(self) -> Self:
        """Return the data set itself; raise a DataError where no search can use it."""
        if len(self.classes) < 2:
            raise DataError(f"data set '{self.name}' must have at least 2 classes, got {list(self.classes)}")
        for part, source in (("training", self.train), ("test", self.test)):
            if source is not None:
                self._check_part(part, source)
        counts = torch.bincount(self.train.labels, minlength=len(self.classes))
        empty = [self.classes[position] for position in (counts == 0).nonzero().flatten().tolist()]
        if empty:
            raise DataError(f"data set '{self.name}' has no training image of class '{empty[0]}'")
        for what, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != self.channels or not all(math.isfinite(value) for value in values):
                raise DataError(f"data set '{self.name}' must have a {what} for {self.channels} channels, got {values}")
        if min(self.std) <= 0:
            raise DataError(f"data set '{self.name}' must have a std above 0 in every channel, got {self.std}")
        return self

    def _check_part(self, part: str, source: Source) -> None:
        if len(source) == 0:
            raise DataError(f"data set '{self.name}' has no {part} images")
        lowest, highest = int(source.labels.min()), int(source.labels.max())
        if lowest < 0 or highest >= len(self.classes):
            raise DataError(
                f"{part} labels of data set '{self.name}' must lie in 0..{len(self.classes) - 1}, "
                f"got {lowest if lowest < 0 else highest}"
            )
        if source.shape != self.train.shape:
            raise DataError(
                f"{part} images of data set '{self.name}' must have the training images' shape "
                f"{list(self.train.shape)}, got {list(source.shape)}"
            )


def measure_statistics(source: Source) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation per channel, on images spread evenly over the source."""
    count = min(len(source), SAMPLE)
    total = torch.zeros(source.shape[0], dtype=torch.float64)
    squares = torch.zeros_like(total)
    for index in torch.split(torch.arange(count) * len(source) // count, CHUNK):
        images = to_units(source.fetch(index)).double()
        total += images.sum(dim=(0, 2, 3))
        squares += images.square().sum(dim=(0, 2, 3))
    pixels = count * math.prod(source.shape[1:])
    mean = total / pixels
    std = (squares / pixels - mean.square()).clamp(min=0).sqrt()
    std[std < 1e-6] = 1.0  # a constant channel must not divide by zero
    return tuple(mean.tolist()), tuple(std.tolist())


def locate(name: str, directory: Path | None, path: str = "") -> Path:
    """Return where a data set of this name is: `path` as the user sees it, or in the data folder."""
    if directory is None and not path:
        raise DataError(describe_missing_folder(name))
    own = expand(path)
    return own if directory is None or (path and exists(own)) else directory / own


def to_channels_first(images: np.ndarray[Any, Any]) -> Tensor:
    """Return arrays [n, H, W], [n, H, W, C] or [n, C, H, W] as [n, C, H, W]; channels are the shorter outer axis."""
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and images.shape[-1] < images.shape[1]:
        images = np.moveaxis(images, -1, 1)
    native = images.astype(images.dtype.newbyteorder("="), copy=False)  # torch takes no foreign byte order
    try:
        return torch.from_numpy(np.require(native, requirements=["C", "W"]))
    except TypeError as error:
        raise DataError(f"images must be uint8 or float, got {images.dtype}") from error


def as_image(value: Any, what: str) -> Tensor:
    """Return one image as a tensor [C, H, W]."""
    if isinstance(value, Image.Image):
        value = _convert_picture(value)
    if isinstance(value, np.ndarray):
        value = to_channels_first(value[None])[0]
    if not isinstance(value, Tensor):
        raise DataError(f"{what} must be a tensor, a numpy array or a PIL image, got {type(value).__name__}")
    image = value[None] if value.ndim == 2 else value
    if image.ndim != 3 or 0 in image.shape:
        raise DataError(f"{what} must have the shape [C, H, W] or [H, W], none of it 0, got {list(value.shape)}")
    _check_pixels(image, what)
    return image


def _convert_picture(image: Image.Image) -> Tensor:
    # 16-bit and float modes pass as they are: converting them would clip; what is left holds no plain channels
    plain = image.mode in ("L", "RGB", "RGBA", "F") or image.mode.startswith("I")
    pixels = np.array(image if plain else image.convert("RGB"))
    return torch.from_numpy(pixels if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0))


def check_labels(labels: Tensor, count: int) -> Tensor:
    """Return labels as int64 [count]; raise a DataError where they do not fit."""
    if labels.dtype == torch.bool or labels.is_floating_point() or labels.is_complex():
        raise DataError(f"labels must be integers, got {str(labels.dtype).removeprefix('torch.')}")
    if labels.shape != (count,):
        raise DataError(f"labels must have the shape [{count}], one per image, got {list(labels.shape)}")
    return labels.to(torch.int64)


def _check_pixels(images: Tensor, what: str) -> None:
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise DataError(f"{what} must be uint8 or float, got {str(images.dtype).removeprefix('torch.')}")
    if images.is_floating_point() and not images.isfinite().all():
        raise DataError(f"{what} must hold finite numbers, got NaN or infinity")
