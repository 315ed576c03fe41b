"""Check settings against a shipped JSON schema: the same lines as the full check, and no import of torch.

A schema was generated from the settings (`json_schema.py`); here it is read back into `Setting` objects. What only code
can decide (ranges, plug-ins, sizes of networks) is left to the full check.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any, Literal

from archloom.core.errors import suggestion
from archloom.core.json_schema import NAMES, PATH, Schema
from archloom.core.recipes import PLACES
from archloom.core.settings import Setting, Settings, check_values

NOT_SETTINGS = ("name", "preset")  # what a section names stands in it, too
_TYPES: Mapping[str, Any] = {name: kind for kind, name in NAMES.items() if kind is not Path}


def read_schema(kind: str) -> Schema | None:
    """Return the shipped schema of the TOML files of a command, None where there is none."""
    for place in PLACES:
        file = place / "schema" / f"{kind}.json"
        if file.is_file():
            found: Schema = json.loads(file.read_text(encoding="utf-8"))
            return found
    return None


def list_problems(document: Schema, given: Settings, names: Mapping[str, str]) -> list[str]:
    """Return a line for each section or setting that the schema refuses.

    Args:
        document: the schema of a file.
        given: settings by section.
        names: the name in each section that names something, such as the strategy. Names are not checked here.
    """
    known = document["properties"]
    problems = [f"unknown section '{name}'{suggestion(name, known)}" for name in given if name not in known]
    for section, values in given.items():
        table = find_table(document, section, names.get(section, "")) if section in known else None
        if table is not None:
            problems += _check_table(section, table, values)
    return problems


def check_top_level(document: Schema, given: Settings) -> list[str]:
    """Return a line for each setting at the top level of a file that the schema refuses; tables may hold anything."""
    parts = {n: {"type": "object"} if p.get("type") == "object" else p for n, p in document["properties"].items()}
    return _check_table("", {"properties": parts}, given)


def _check_table(section: str, table: Schema, values: Settings) -> list[str]:
    settings = {
        name: _read_setting(name, part) for name, part in table["properties"].items() if name not in NOT_SETTINGS
    }
    own = {n: v for n, v in values.items() if n not in NOT_SETTINGS} if isinstance(values, Mapping) else values
    return check_values(section, settings, own)[1]


def find_table(document: Schema, section: str, name: str) -> Schema | None:
    """Return the schema of the section's table: of what it names, where it may name several things."""
    part = document["properties"][section]
    part = document["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
    if "anyOf" in part:
        named = (option for option in part["anyOf"] if option["properties"]["name"].get("const") == name)
        return next(named, None)
    return part if part.get("type") == "object" and "properties" in part else None


def _read_setting(name: str, part: Schema) -> Setting:
    return Setting(name, read_type(part), None, required=False)


def read_type(part: Schema) -> Any:
    """Return the type that a part of a schema stands for; None is one of its values, since a file may leave it out."""
    if "anyOf" in part:
        return reduce(lambda left, right: left | right, [read_type(member) for member in part["anyOf"]])
    if "enum" in part:
        return Literal[tuple(part["enum"])]
    if "const" in part:
        return Literal[part["const"]]
    kind = part.get("type")
    if kind == "array":
        return _read_array(part)
    if kind == "object":
        return _read_table(part)
    return Path if part.get("format") == PATH else _TYPES.get(str(kind), Any)


def _read_array(part: Schema) -> Any:
    if "prefixItems" in part:
        return tuple.__class_getitem__(tuple(map(read_type, part["prefixItems"])))
    return list[read_type(part["items"])] if "items" in part else list  # type: ignore[misc]  # a type made here


def _read_table(part: Schema) -> Any:
    """Return a dataclass with the settings of a table, or a mapping where any name may stand in it."""
    if part.get("properties"):
        fields = [
            (name, read_type(inner), dataclasses.field(default=None, kw_only=True))
            for name, inner in part["properties"].items()
        ]
        return dataclasses.make_dataclass("Table", fields, frozen=True)
    values = part.get("additionalProperties")
    return Mapping[str, read_type(values)] if isinstance(values, dict) else Mapping  # type: ignore[misc]
