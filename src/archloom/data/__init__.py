"""Data sets by name. A new one is a row here, or `package.module:function` in a configuration.

A data set is a function of the data folder and its own keyword settings that returns an `ImageData`.
"""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archloom.catalogue import Catalogue, Entry
from archloom.errors import DataError, SettingError, suggestion

if TYPE_CHECKING:  # listing the data sets does not import torch
    from archloom.data.source import ImageData

FOLDER_VARIABLE = "ARCHLOOM_DATA"

DATA = Catalogue(
    "data set",
    {
        "digits": Entry("archloom.data.digits:digits"),
        "cifar10": Entry(
            "archloom.data.cifar:cifar10", summary="CIFAR-10: 60,000 colour images of 32x32 pixels in 10 classes."
        ),
        "cifar100": Entry(
            "archloom.data.cifar:cifar100", summary="CIFAR-100: 60,000 colour images of 32x32 pixels in 100 classes."
        ),
        "folder": Entry("archloom.data.folder:folder"),
        "npz": Entry("archloom.data.arrays:npz", summary="A numpy .npz file of images and labels."),
    },
)


def load(name: str, *, directory: Path | None, **settings: Any) -> ImageData:
    """The data set of this name, checked; without `directory` it is looked for in $ARCHLOOM_DATA."""
    entry = DATA.find(name)
    function = entry.load()
    known = [key for key in inspect.signature(function).parameters if key != "directory"]
    problems = [f"unknown setting 'data.{key}'{suggestion(key, known)}" for key in settings if key not in known]
    if problems:
        raise SettingError(problems)
    variable = os.environ.get(FOLDER_VARIABLE)
    place = Path(variable) if directory is None and variable else directory
    return _checked(name, function(place, **{**entry.settings, **settings}))


def _checked(name: str, data: object) -> ImageData:
    from archloom.data.source import ImageData

    if not isinstance(data, ImageData):  # a plug-in may return anything
        raise DataError(f"data set '{name}' must return an ImageData, got {type(data).__name__}")
    return data.check()


__all__ = ["DATA", "FOLDER_VARIABLE", "load"]
