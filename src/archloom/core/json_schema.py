"""JSON schemas of settings, so that editors complete and check TOML files as they are written."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from archloom.core.settings import Setting, is_class, is_of_fixed_length, is_section, is_union, plain_value, schema

Schema = dict[str, Any]  # JSON: its shape is that of the standard

NAMES: Mapping[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string", Path: "string"}
PATH = "path"  # the format of a string


def table_schema(settings: Mapping[str, Setting], **more: Schema) -> Schema:
    """Return the schema of a table with these settings, and with properties that are no settings."""
    properties = {**more, **{name: _setting_schema(setting) for name, setting in settings.items()}}
    required = [name for name, setting in settings.items() if setting.required]
    table: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**table, "required": required} if required else table


def join_settings(parts: Iterable[Mapping[str, Setting]]) -> Schema:
    """Return the schema of a table that may have the settings of any of the parts; none is required."""
    joined: dict[str, list[Schema]] = {}
    for part in parts:
        for name, setting in part.items():
            found = joined.setdefault(name, [])
            one = {key: value for key, value in _setting_schema(setting).items() if key != "default"}
            found += [] if one in found else [one]
    properties = {name: found[0] if len(found) == 1 else {"anyOf": found} for name, found in joined.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _setting_schema(setting: Setting) -> Schema:
    described: Schema = {**type_schema(setting.type), "description": setting.help}
    default = plain_value(setting.default)
    return described if setting.required or default is None else {**described, "default": default}


def type_schema(wanted: Any) -> Schema:
    """Return the schema of one type. None has no place in it, since TOML has no such value."""
    kind, arguments = typing.get_origin(wanted) or wanted, typing.get_args(wanted)
    if is_union(wanted):
        members = [type_schema(member) for member in arguments if member is not type(None)]
        return members[0] if len(members) == 1 else {"anyOf": members}
    if kind is Literal:
        return {"enum": list(arguments)}
    if kind in NAMES:
        return {"type": NAMES[kind], **({"format": PATH} if kind is Path else {})}
    if is_section(kind):
        return {**table_schema(schema(kind)), "required": []}  # what is left out may be in the default
    if is_class(kind, Mapping):
        return {"type": "object", **({"additionalProperties": type_schema(arguments[1])} if arguments else {})}
    if is_class(kind, Iterable):
        return {"type": "array", **_items_schema(arguments)}
    return {}


def _items_schema(arguments: tuple[Any, ...]) -> Schema:
    if not arguments:
        return {}
    if not is_of_fixed_length(arguments):
        return {"items": type_schema(arguments[0])}
    return {
        "prefixItems": [type_schema(argument) for argument in arguments],
        "minItems": len(arguments),
        "maxItems": len(arguments),
    }
