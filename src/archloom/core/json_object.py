"""JSON objects in files of runs: how typed values are written, and how their numbers are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

JsonObject = Mapping[str, Any]
"""What a JSON file or line holds, before `from_json` of a type has read it."""


def to_json_object(value: Any) -> JsonObject:
    """Return the fields of a dataclass, or the items of a mapping, as a JSON object; values in it become plain, too."""
    items = {one.name: getattr(value, one.name) for one in fields(value)} if is_dataclass(value) else dict(value)
    return {name: _plain(item) for name, item in items.items()}


def _plain(value: Any) -> Any:
    if is_dataclass(value) or isinstance(value, Mapping):
        return to_json_object(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def number(value: object) -> float:
    """Return a finite number, or NaN for anything else: files hold null where a number was not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    return float(value) if math.isfinite(value) else math.nan
