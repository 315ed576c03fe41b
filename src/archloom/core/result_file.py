"""Read JSON files of results: check their version and report damage in one line."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Self, TypeVar

from archloom.core.errors import CheckpointError, one_line
from archloom.core.files import reading, refuse_special
from archloom.core.json_object import JsonObject

Result = TypeVar("Result")


def read_result_file(path: Path, parse: Callable[[JsonObject], Result], *, version: int) -> Result:
    """Return what `parse` makes of a JSON file; files without a version are of the first edition.

    Raises:
        CheckpointError: If the file is damaged, or written by a later version.
        StorageError: If the file cannot be read.
    """
    with reading(path):
        refuse_special(path)
        data = path.read_bytes()
    try:
        value = json.loads(data)
        found = value.get("version", 1)
        if found <= version:
            return parse(value)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged ({type(error).__name__}: {one_line(error)})") from error
    raise CheckpointError(f"{path} has version {found}, expected {version} or less; update archloom")


class StoredResult(ABC):
    """A result of many runs, kept in one JSON file of their folder."""

    file_name: ClassVar[str]
    version: ClassVar[int]

    @classmethod
    @abstractmethod
    def from_json(cls, value: JsonObject, *, folder: Path | None = None) -> Self:
        """Return the result that the file holds."""

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """Return the result in a folder, also in one that the first edition wrote.

        Args:
            folder: The folder of the comparison or pipeline.

        Returns:
            The result as it was when it was last written.

        Raises:
            StorageError: If there is no readable file.
        """
        path = Path(folder)
        return read_result_file(
            path / cls.file_name, lambda value: cls.from_json(value, folder=path), version=cls.version
        )
