"""Data sets that a user names by where they are: a folder of pictures, a .npz file, a Hugging Face data set on disk.

The settings of a data set are the same either way: `name = "pictures/"` stands for `name = "folder"` and its path.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from archloom.core.errors import SettingError
from archloom.core.files import exists, expand
from archloom.core.settings import Settings
from archloom.data import DATA

GIVEN = "given"  # the name of data that Python code passes instead of a data set to load
FOLDER, NPZ, HUGGING_FACE, TEXT = "folder", "npz", "huggingface", "text"
TRAIN_TEXT = "train.txt"  # of a folder of text
BATCHES = {"cifar-10-batches-py": "cifar10", "cifar-100-python": "cifar100"}  # published folders, in the data folder
ON_DISK = ("dataset_dict.json", "state.json")  # what `save_to_disk` of the library datasets writes
RUN_FILES = {"config.toml": "resume", "pipeline.toml": "run", "comparison.toml": "compare"}  # what a run leaves
KINDS = "a name (archloom list data), a folder of pictures, an .npz file or a Hugging Face data set on disk"


def is_data_path(given: str) -> bool:
    """Return whether a text is written like a path, or names something that exists."""
    return "/" in given or given.endswith(".npz") or exists(expand(given))


def recognize(given: str | Path) -> Settings:
    """Return the settings of the data set at a path: its name and where it is.

    Raises:
        SettingError: If there is nothing, or nothing that holds images.
    """
    path = expand(given).absolute()
    if not exists(path):
        raise SettingError(f"there are no data at '{given}'{suggest_path(str(given)) or f'; data are {KINDS}'}")
    if path.is_dir():
        return _recognize_folder(path)
    if path.suffix == ".npz":
        return {"name": NPZ, "path": str(path)}
    if path.suffix == ".toml":
        raise SettingError(f"'{given}' is a recipe, not data: name it as the first argument")
    raise SettingError(
        f"'{given}' must be a folder of pictures or an .npz file, got a file '{path.suffix or path.name}'"
    )


def suggest_path(given: str) -> str:
    """Return '; did you mean ...?' for the nearest folder or .npz file where the user is typing, or nothing."""
    path = expand(given)
    try:
        files = [file for file in path.parent.iterdir() if file.suffix == ".npz" or file.is_dir()]
    except OSError:
        return ""
    near = difflib.get_close_matches(path.name, [file.name for file in files], n=1)
    return f"; did you mean '{path.parent / near[0]}'?" if near else ""


def _recognize_folder(path: Path) -> Settings:
    for file, command in RUN_FILES.items():
        if (path / file).is_file():
            raise SettingError(f"'{path}' is a run, not data; continue it with: archloom {command} {path}")
    for folder, name in BATCHES.items():
        if path.name == folder:
            return {"name": name, "directory": str(path.parent)}
    if any((path / name).is_file() for name in ON_DISK):
        return {"name": HUGGING_FACE, "path": str(path)}
    if (path / TRAIN_TEXT).is_file():
        return {"name": TEXT, "path": str(path)}
    return {"name": FOLDER, "path": str(path)}


def locate_data(table: Settings) -> Settings:
    """Return the section `data` with a name and a path where its name is a path; any other section as it is."""
    name = table.get("name")
    if not isinstance(name, str | Path) or str(name) in (*DATA, GIVEN) or not is_data_path(str(name)):
        return table
    return {**table, **recognize(name)}


def absolute_path(path: str, directory: Path | None) -> str:
    """Return the path of data for any working directory: relative paths start at the user first, then the data folder.

    A path that is at neither place stays as it is; reading it says where it was looked for.
    """
    for start in (Path.cwd(), *([] if directory is None else [directory])):
        if path and exists(start / expand(path)):
            return str((start / expand(path)).absolute())
    return path
