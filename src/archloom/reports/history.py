"""Reading JSON objects of runs in which anything may be missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from archloom.core.json_object import JsonObject, number

History = Sequence[JsonObject]


def find(record: JsonObject | None, *path: str) -> Any:
    """Return the value under `path`, or None where any step of it is missing."""
    value: Any = record
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


__all__ = ["History", "find", "number"]
