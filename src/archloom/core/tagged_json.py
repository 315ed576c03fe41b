"""JSON files that say what kind of file they are: read whole and checked, or refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from archloom.core.errors import DataError, one_line
from archloom.core.files import reading
from archloom.core.json_object import JsonObject

Parsed = TypeVar("Parsed")


def read_tagged(path: Path, kind: str, parse: Callable[[JsonObject], Parsed], *, otherwise: str) -> Parsed:
    """Return what `parse` makes of a file of this kind; `otherwise` is the error message for any other file."""
    with reading(path):
        data = path.read_bytes()
    try:
        content = json.loads(data)
        if content["kind"] != kind:
            raise ValueError("it is of another kind")
        return parse(content)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DataError(f"{path} {otherwise}: {one_line(error)}") from error
