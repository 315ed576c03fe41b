"""A folder of image files, one sub-folder per class: the usual shape of a user's own pictures.

Files of any size and mode become squares of `size` pixels in RGB. What fits in memory is decoded once; a larger set is
decoded as batches ask for it, in threads, since Pillow lets other threads run while it decodes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO

import numpy as np
import torch
from annotated_doc import Doc
from PIL import Image, ImageOps
from torch import Tensor

from archloom.core.errors import DataError, one_line, require
from archloom.data.augment import Augment
from archloom.data.source import ImageData, InMemory, Shape, Source, locate, measure_statistics
from archloom.data.splits import hold_out

EXTENSIONS = frozenset([".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"])
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # of these names; others start programs, as EPS does
TRAIN = "train"
TESTS = ("test", "val", "valid")  # the first one there is holds the test images
MEGABYTE = 2**20


def folder(
    directory: Path | None,
    *,
    path: Annotated[str, Doc("the folder, within the data folder or by itself")] = "",
    size: Annotated[int, Doc("side of the squares that images are scaled to")] = 32,
    test_fraction: Annotated[float, Doc("of every class, where there is no folder of test images")] = 0.2,
    in_memory: Annotated[bool | None, Doc("keep decoded images; left out: if they fit")] = None,
    memory_limit_mb: Annotated[int, Doc("what fits")] = 2000,
    crop_padding: Annotated[int, Doc("augmentation: pixels by which a training image may be shifted")] = 4,
    flip: Annotated[bool, Doc("augmentation: left to right, one image in two")] = True,
    resized_crop: Annotated[
        int, Doc("augmentation: side that a random part of the image is scaled to, instead of shifting it")
    ] = 0,
    colour_jitter: Annotated[
        float, Doc("augmentation: change brightness, contrast and saturation by up to this share")
    ] = 0.0,
) -> ImageData:
    """Load image files in one sub-folder per class, or such folders below `train` and `test` (or `val`).

    The folder is `path` in the data folder. Without test images, the last `test_fraction` of every class are held out.
    `in_memory` decides where decoded images are kept; None lets `memory_limit_mb` decide. With `resized_crop`, images
    are evaluated on a centred square of that side.
    """
    root = _root(directory, path)
    require(
        {
            f"data.size must be at least 1, got {size}": size >= 1,
            f"data.resized_crop must lie in 0..{size} (data.size), got {resized_crop}": 0 <= resized_crop <= size,
            f"data.colour_jitter must lie in [0, 1], got {colour_jitter}": 0 <= colour_jitter <= 1,
            f"data.memory_limit_mb must be 0 or more, got {memory_limit_mb}": memory_limit_mb >= 0,
        }
    )
    train_files, test_files, classes = _list_files(root, test_fraction)
    count = len(train_files.paths) + len(test_files.paths)
    keep = count * 3 * size * size <= memory_limit_mb * MEGABYTE if in_memory is None else in_memory
    train = _source(train_files, size=size, in_memory=keep)
    mean, std = measure_statistics(train)
    return ImageData(
        name=root.name,
        train=train,
        classes=classes,
        test=_source(test_files, size=size, in_memory=keep) if test_files.paths else None,
        mean=mean,
        std=std,
        augment=Augment(
            crop_padding=0 if resized_crop else crop_padding,
            flip=flip,
            resized_crop=resized_crop,
            colour_jitter=colour_jitter,
        ),
    )


def _root(directory: Path | None, path: str) -> Path:
    root = locate("folder", directory, path)
    if not root.is_dir():
        raise DataError(f"there is no folder '{root}'")
    return root


# --- which files there are


@dataclass(frozen=True, eq=False)
class Files:
    """Image files and the number of the class of each."""

    paths: tuple[Path, ...]
    labels: Tensor

    def part(self, index: Tensor) -> Files:
        """Return the files at the given positions, with their labels."""
        return Files(tuple(self.paths[position] for position in index.tolist()), self.labels[index])


def _list_files(root: Path, test_fraction: float) -> tuple[Files, Files, tuple[str, ...]]:
    """Return training files, test files (perhaps none) and the names of the classes."""
    present = {place.name for place in _subfolders(root)}
    divided = TRAIN in present and present <= {TRAIN, *TESTS}
    train_root = root / TRAIN if divided else root
    classes = tuple(place.name for place in _subfolders(train_root))
    if len(classes) < 2:
        raise DataError(
            f"'{train_root}' must have a sub-folder for each of at least 2 classes, got {len(classes)} sub-folders"
        )
    train = _files(train_root, classes)
    empty = set(range(len(classes))) - set(train.labels.tolist())
    if empty:
        raise DataError(
            f"'{train_root / classes[min(empty)]}' has no image files; known are {', '.join(sorted(EXTENSIONS))}"
        )
    tests = [root / name for name in TESTS if divided and name in present]
    if not tests:
        kept, held = hold_out_each(train.labels, test_fraction)
        return train.part(kept), train.part(held), classes
    unknown = [place for place in _subfolders(tests[0]) if place.name not in classes]
    if unknown:
        raise DataError(f"'{unknown[0]}' is not a class of the training images in '{train_root}'")
    test = _files(tests[0], classes)
    if not test.paths:
        raise DataError(f"'{tests[0]}' has no image files")
    return train, test, classes


def hold_out_each(labels: Tensor, fraction: float) -> tuple[Tensor, Tensor]:
    """Return indices to keep and to hold out; a class of few images still holds one out, if it has two."""
    kept, held = hold_out(labels, fraction=fraction)
    if fraction == 0:
        return kept, held
    counts, test_counts = torch.bincount(labels), torch.bincount(labels[held], minlength=int(labels.max()) + 1)
    few = ((counts > 1) & (test_counts == 0)).nonzero().flatten().tolist()
    lasts = torch.tensor([int((labels == label).nonzero()[-1]) for label in few], dtype=torch.int64)
    held = torch.cat([held, lasts]).sort().values
    return kept[~torch.isin(kept, held)], held


def _subfolders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def _files(root: Path, classes: Sequence[str]) -> Files:
    found = [(path, label) for label, name in enumerate(classes) for path in _images(root / name)]
    return Files(tuple(path for path, _ in found), torch.tensor([label for _, label in found], dtype=torch.int64))


def _images(root: Path) -> Iterator[Path]:
    """Return the image files of a class in a fixed order, those of deeper folders included."""
    for path in sorted(root.rglob("*")):
        if path.suffix.lower() in EXTENSIONS and not path.name.startswith(".") and path.is_file():
            yield path


# --- reading them


class ImageFiles(Source):
    """Images decoded when they are asked for."""

    def __init__(self, paths: Sequence[Path], labels: Tensor, *, size: int) -> None:
        self.paths = tuple(paths)
        self.labels = labels
        self.size = size
        self.shape = (3, size, size)

    def fetch(self, index: Tensor) -> Tensor:
        """Return the decoded images at the given positions."""
        return decode_in_threads(lambda position: decode_image(self.paths[position], size=self.size), index, self.shape)


def decode_in_threads(decode: Callable[[int], Tensor], index: Tensor, shape: Shape) -> Tensor:
    """Return the images that `decode` returns for each position, as one tensor."""
    images = torch.empty(len(index), *shape, dtype=torch.uint8)
    positions = index.tolist()

    def read(row: int) -> None:
        images[row] = decode(positions[row])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(read, range(len(positions))):  # going through the results raises what a thread raised
            pass
    return images


def _source(files: Files, *, size: int, in_memory: bool) -> Source:
    source = ImageFiles(files.paths, files.labels, size=size)
    if not in_memory:
        return source
    return InMemory(source.fetch(torch.arange(len(source))), source.labels)


def decode_image(file: Path | BinaryIO, *, size: int, name: str = "") -> Tensor:
    """Return an image file as bytes [3, size, size]: the largest centred square, scaled; errors have its name."""
    try:
        with Image.open(file, formats=FORMATS) as image:
            _check_readable(image)
            image.draft("RGB", (2 * size, 2 * size))  # JPEG can shrink while decoding: photographs load much faster
            pixels = np.asarray(_square(image, size))
    except Exception as error:  # decoders of damaged files raise OSError, SyntaxError, struct.error and many more
        raise DataError(f"cannot read the image '{name or file}': {one_line(error)}") from error
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1)


def _check_readable(image: Image.Image) -> None:
    if image.mode == "F":
        raise DataError("floating-point pixels have no known range; save the image with 8 or 16 bits")
    if image.mode == "I" and image.format == "TIFF":  # of 32 bits; other formats have 16 in this mode
        raise DataError("32-bit pixels have no known range; save the image with 8 or 16 bits")
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and image.width * image.height > limit:  # up to twice its limit, Pillow itself only warns
        raise DataError(f"an image may have at most {limit} pixels, got {image.width}x{image.height}")


def _square(image: Image.Image, size: int) -> Image.Image:
    upright = ImageOps.exif_transpose(image)
    if "transparency" in upright.info:  # a palette's transparent colours are converted by way of RGBA
        upright = upright.convert("RGBA")
    elif upright.mode.startswith("I"):  # 16-bit grey: a plain conversion would clip nearly all of it to white
        upright = Image.fromarray((np.asarray(upright).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))
    return ImageOps.fit(upright.convert("RGB"), (size, size), method=Image.Resampling.BILINEAR)
