"""Data sets by name. A new one is a row here, or `package.module:function` in a configuration.

A data set is a function of the data folder and its own keyword settings that returns an `ImageData`
or a `TextData`.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from archloom.core.errors import DataError, SettingError, one_line, suggestion
from archloom.core.files import FOLDER_VARIABLE, data_folder
from archloom.core.registry import Catalogue, Entry
from archloom.data.facts import FACTS, DataSet, Facts

_CORPORA = "archloom.data.corpora"

DATA = Catalogue(
    "data set",
    {
        "strokes": Entry("archloom.data.strokes:strokes"),
        "digits": Entry("archloom.data.digits:digits"),
        "cifar10": Entry(
            "archloom.data.cifar:cifar10", summary="CIFAR-10: 60,000 colour images of 32x32 pixels in 10 classes."
        ),
        "cifar100": Entry(
            "archloom.data.cifar:cifar100", summary="CIFAR-100: 60,000 colour images of 32x32 pixels in 100 classes."
        ),
        "folder": Entry("archloom.data.folder:folder"),
        "ptb": Entry(
            f"{_CORPORA}:ptb", summary="Penn Treebank: 0.93 million words to train on, 10,000 different ones."
        ),
        "wikitext2": Entry(
            f"{_CORPORA}:wikitext2", summary="WikiText-2: 2.1 million words to train on, 33,278 different."
        ),
        "text": Entry(f"{_CORPORA}:text", summary="A folder with train.txt, valid.txt and test.txt."),
        "pydoc": Entry(f"{_CORPORA}:pydoc", summary="The language reference of this Python, as text: no download."),
        "npz": Entry("archloom.data.arrays:npz", summary="A numpy .npz file of images and labels."),
        "huggingface": Entry("archloom.data.hugging_face:huggingface"),
    },
    makes="archloom.data.facts:DataSet",
)

DEFAULT_DATA = "strokes"  # needs no download, and architectures differ clearly on it


def load(name: str, *, directory: Path | None, **settings: Any) -> DataSet:
    """Return the data set of this name, checked; without `directory` it is looked for in $ARCHLOOM_DATA."""
    entry = DATA.find(name)
    function = entry.load()
    known = [key for key in inspect.signature(function).parameters if key != "directory"]
    problems = [f"unknown setting 'data.{key}'{suggestion(key, known)}" for key in settings if key not in known]
    if problems:
        raise SettingError(problems)
    try:
        data = function(data_folder(directory), **{**entry.settings, **settings})
    except OSError as error:
        raise DataError(f"data set '{name}' cannot be read: {one_line(error)}") from error
    return _check(name, data)


def _check(name: str, data: object) -> DataSet:
    if not isinstance(data, DataSet):  # an annotation is only a promise
        raise DataError(f"data set '{name}' must return an ImageData or a TextData, got {type(data).__name__}")
    return data.check()


__all__ = ["DATA", "DEFAULT_DATA", "FACTS", "FOLDER_VARIABLE", "DataSet", "Facts", "load"]
