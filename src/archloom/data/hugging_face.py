"""A Hugging Face data set on disk, as `save_to_disk` of the library datasets writes it: Arrow files of pictures.

The files are read with pyarrow alone, mapped into memory. Pictures are stored as the bytes of image files, so they are
decoded as those of a folder are: once if they fit into memory, else as batches ask for them.
"""

from __future__ import annotations

import importlib.util
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import torch
from annotated_doc import Doc
from torch import Tensor

from archloom.core.errors import DataError, SettingError, one_line, require, suggestion
from archloom.core.json_object import JsonObject
from archloom.core.state import StateDict
from archloom.data.augment import Augment
from archloom.data.folder import MEGABYTE, decode_image, decode_in_threads, hold_out_each
from archloom.data.source import ImageData, InMemory, Source, check_labels, locate, measure_statistics

NEEDS = "pyarrow"
MOST_CLASSES = 1_000_000  # without names: a file must not make a list of them without end
SPLITS, STATE, INFO = "dataset_dict.json", "state.json", "dataset_info.json"
TRAIN, TESTS = "train", ("test", "validation", "valid")  # the first one there is holds the test images


def huggingface(
    directory: Path | None,
    *,
    path: Annotated[str, Doc("the folder that `save_to_disk` wrote, or one within the data folder")] = "",
    image_column: Annotated[str, Doc("the column of pictures; left out: the only one")] = "",
    label_column: Annotated[str, Doc("the column of classes; left out: the only one")] = "",
    size: Annotated[int, Doc("side of the squares that images are scaled to")] = 32,
    test_fraction: Annotated[float, Doc("of every class, where there is no test split")] = 0.2,
    memory_limit_mb: Annotated[int, Doc("decoded images are kept if they fit into so much")] = 2000,
    crop_padding: Annotated[int, Doc("augmentation: pixels by which a training image may be shifted")] = 4,
    flip: Annotated[bool, Doc("augmentation: left to right, one image in two; false for digits and text")] = True,
) -> ImageData:
    """Load a data set that `save_to_disk` of the library datasets wrote: one split, or a folder per split.

    The splits are `train` and `test` (or `validation`). Without a test split, the last `test_fraction` of every class
    are held out. Reading needs pyarrow: pip install 'archloom[huggingface]'.
    """
    root = locate("huggingface", directory, path)
    require(
        {
            f"data.size must be at least 1, got {size}": size >= 1,
            f"data.memory_limit_mb must be 0 or more, got {memory_limit_mb}": memory_limit_mb >= 0,
        }
    )
    if importlib.util.find_spec(NEEDS) is None:
        raise SettingError(f"'{root}' needs {NEEDS}: pip install 'archloom[huggingface]'")
    train_root, test_root = _find_splits(root)
    columns = _Columns.find(_features(train_root), image_column, label_column, root)
    train, test = _open(train_root, columns, size), None if test_root is None else _open(test_root, columns, size)
    keep = (len(train) + (0 if test is None else len(test))) * 3 * size * size <= memory_limit_mb * MEGABYTE
    parts = _hold_out(train, test, test_fraction)
    kept, held = ((None if part is None else part.in_memory() if keep else part) for part in parts)
    assert kept is not None, "there are training images"
    mean, std = measure_statistics(kept)
    augment = Augment(crop_padding=crop_padding, flip=flip)
    classes = columns.classes or tuple(map(str, range(int(train.labels.max()) + 1)))
    return ImageData(name=root.name, train=kept, classes=classes, test=held, mean=mean, std=std, augment=augment)


class ArrowPictures(Source):
    """Pictures in a column of Arrow files, decoded when they are asked for."""

    def __init__(self, files: Sequence[Path], column: str, labels: Tensor, rows: Tensor, *, size: int) -> None:
        self._files, self._column, self._rows, self._size = tuple(files), column, rows, size
        self.labels, self.shape = labels, (3, size, size)

    def __getstate__(self) -> StateDict:
        return {name: value for name, value in vars(self).items() if name != "_pictures"}  # mapped anew elsewhere

    @cached_property
    def _pictures(self) -> Any:
        return _read_table(self._files).column(self._column)

    def part(self, index: Tensor) -> ArrowPictures:
        """Return the pictures at the given positions, with their labels."""
        return ArrowPictures(self._files, self._column, self.labels[index], self._rows[index], size=self._size)

    def in_memory(self) -> InMemory:
        """Return the pictures decoded."""
        return InMemory(self.fetch(torch.arange(len(self))), self.labels)

    def fetch(self, index: Tensor) -> Tensor:
        """Return the decoded images at the given positions."""
        pictures, rows = self._pictures, self._rows
        return decode_in_threads(lambda position: self._decode(pictures, int(rows[position])), index, self.shape)

    def _decode(self, pictures: Any, row: int) -> Tensor:
        picture, name = pictures[row].as_py(), f"row {row} of column {self._column}"
        if not isinstance(picture, Mapping) or not picture.get("bytes"):
            raise DataError(f"{name} must hold the bytes of a picture; `save_to_disk` stores them")
        return decode_image(io.BytesIO(picture["bytes"]), size=self._size, name=name)


def _open(root: Path, columns: _Columns, size: int) -> ArrowPictures:
    files = _arrow_files(root)
    table = _read_table(files)
    missing = [name for name in (columns.image, columns.label) if table.column_names.count(name) != 1]
    if missing:
        raise DataError(f"the files of '{root}' must have one column '{missing[0]}', as {INFO} says")
    column = table.column(columns.label)
    if column.null_count:
        raise DataError(f"'{root}': column '{columns.label}' has {column.null_count} rows without a label")
    if len(column) == 0:
        raise DataError(f"'{root}' has no rows")
    if not _is_whole_number(column.type):
        raise DataError(f"'{root}': column '{columns.label}' must hold numbers of classes, got {column.type}")
    labels = torch.as_tensor(column.to_pylist(), dtype=torch.int64)
    for extreme in (int(labels.min()), int(labels.max())):
        if not 0 <= extreme < (len(columns.classes) or MOST_CLASSES):
            most = (len(columns.classes) or MOST_CLASSES) - 1
            raise DataError(f"labels of '{root}' must lie in 0..{most}, got {extreme}")
    return ArrowPictures(files, columns.image, check_labels(labels, len(labels)), torch.arange(len(labels)), size=size)


def _is_whole_number(kind: Any) -> bool:
    import pyarrow

    return bool(pyarrow.types.is_signed_integer(kind) or pyarrow.types.is_uint8(kind))


def _hold_out(
    train: ArrowPictures, test: ArrowPictures | None, fraction: float
) -> tuple[ArrowPictures, ArrowPictures | None]:
    if test is not None:
        return train, test
    kept, held = hold_out_each(train.labels, fraction)
    return train.part(kept), train.part(held) if len(held) else None


# --- what the files hold


@dataclass(frozen=True)
class _Columns:
    """The columns of pictures and of classes, and the names of the classes if the file has them."""

    image: str
    label: str
    classes: tuple[str, ...]

    @classmethod
    def find(cls, features: JsonObject, image: str, label: str, root: Path) -> _Columns:
        """Return the columns that were named, or the only ones of their kind."""
        label = _pick(features, label, "ClassLabel", "label_column", root)
        feature = features[label]
        names = feature.get("names") if isinstance(feature, dict) else None
        if not isinstance(names, list | None):
            raise DataError(f"'{root / INFO}': the names of column '{label}' must be a list, got {one_line(names)}")
        classes = tuple(map(str, names or ()))
        return cls(_pick(features, image, "Image", "image_column", root), label, classes)


def _pick(features: JsonObject, given: str, kind: str, setting: str, root: Path) -> str:
    if given:
        if given not in features:
            raise SettingError(f"data.{setting}: '{root}' has no column '{given}'{suggestion(given, features)}")
        return given
    found = [name for name, feature in features.items() if isinstance(feature, dict) and feature.get("_type") == kind]
    if len(found) != 1:
        listed = ", ".join(features) or "none"
        raise DataError(
            f"'{root}' must have one column of type {kind}, got {len(found)}; name one with data.{setting}: {listed}"
        )
    return found[0]


def _find_splits(root: Path) -> tuple[Path, Path | None]:
    """Return the folders of training and test images, None if there are none of the latter."""
    if (root / STATE).is_file():
        return root, None
    listed = _read_json(root / SPLITS).get("splits", [])
    if not isinstance(listed, list):
        raise DataError(f"'{root / SPLITS}' must list the splits, got {one_line(listed)}")
    names = [str(name) for name in listed]
    if TRAIN not in names:
        raise DataError(f"'{root}' must have a split 'train', got {', '.join(names) or 'none'}")
    return root / TRAIN, next((root / name for name in TESTS if name in names), None)


def _features(root: Path) -> JsonObject:
    features = _read_json(root / INFO).get("features")
    if not isinstance(features, dict):
        raise DataError(f"'{root / INFO}' must list the features of the data set")
    return features


def _arrow_files(root: Path) -> list[Path]:
    try:
        names = [str(entry["filename"]) for entry in _read_json(root / STATE)["_data_files"]]
    except (KeyError, TypeError) as error:
        raise DataError(f"'{root / STATE}' must list the files of the data set") from error
    if any(Path(name).name != name or "\0" in name for name in names):
        raise DataError(f"'{root / STATE}' names a file outside of its folder")
    if not names:
        raise DataError(f"'{root / STATE}' must list the files of the data set")
    return [root / name for name in names]


def _read_json(path: Path) -> JsonObject:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"'{path}' cannot be read: {one_line(error)}") from error
    if not isinstance(content, dict):
        raise DataError(f"'{path}' must hold a JSON object")
    return content


def _read_table(files: Sequence[Path]) -> Any:
    """Return the rows of all files as one Arrow table, mapped into memory."""
    import pyarrow

    tables = []
    for file in files:
        try:
            tables.append(pyarrow.ipc.open_stream(pyarrow.memory_map(str(file))).read_all())
            tables[-1].validate(full=True)  # or places that a file states could lie outside of its memory
        except (OSError, ValueError, pyarrow.ArrowException) as error:
            raise DataError(f"'{file}' is not a readable Arrow file: {one_line(error)}") from error
    try:
        return pyarrow.concat_tables(tables)
    except (ValueError, pyarrow.ArrowException) as error:
        raise DataError(f"the files of '{files[0].parent}' do not fit together: {one_line(error)}") from error
