"""JSON objects in files of runs: how typed values are written and read."""

from __future__ import annotations

import collections.abc
import functools
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

ValueT = TypeVar("ValueT")

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


def from_json_object(kind: type[ValueT], value: JsonObject, *, partial: bool = False, **known: Any) -> ValueT:
    """Return the dataclass that a JSON object holds, each field read by its type; `known` are fields from elsewhere.

    A missing field has its default, or is None where that is allowed. In a `partial` record a missing number is NaN.
    Other names are ignored.

    Raises:
        KeyError: If another field is missing.
        TypeError, ValueError: If a value is not of the type of its field.
    """
    for name, (hint, has_default) in _typed_fields(kind).items():  # type: ignore[arg-type]  # classes are hashable
        if name in known or (has_default and name not in value):
            continue
        may_miss = _is_optional(hint) or (partial and hint is float)
        known[name] = _read(hint, value.get(name) if may_miss else value[name])
    return kind(**known)


@functools.cache
def _typed_fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Return the type of every field of a dataclass, and whether it has a default."""
    hints = get_type_hints(kind)
    return {
        one.name: (hints[one.name], not (one.default is MISSING and one.default_factory is MISSING))
        for one in fields(kind)
    }


def _is_optional(hint: Any) -> bool:
    return NoneType in get_args(hint)


def _read(hint: Any, value: Any) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if _is_optional(hint):
        (other,) = (one for one in inner if one is not NoneType)
        return None if value is None else float(value) if other is float else _read(other, value)
    if origin is tuple and inner[-1] is not Ellipsis:
        return tuple(_read(each, item) for each, item in zip(inner, value, strict=True))
    if origin in (tuple, collections.abc.Sequence):
        items = [_read(inner[0], item) for item in value]
        return tuple(items) if origin is tuple else items
    if origin is collections.abc.Mapping:
        return {str(name): _read(inner[1], item) for name, item in value.items()}
    if is_dataclass(hint) and isinstance(hint, type):
        read = getattr(hint, "from_json", functools.partial(from_json_object, hint))
        return read(value)
    if hint is Any or origin is Literal:
        return value
    return number(value) if hint is float else hint(value)


def number(value: object) -> float:
    """Return a finite number, or NaN for anything else: files hold null where a number was not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    return float(value) if math.isfinite(value) else math.nan
