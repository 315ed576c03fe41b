"""Typed values as JSON objects, and numbers from JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from archloom.core.json_object import from_json_object, number, to_json_object


@dataclass(frozen=True)
class Part:
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Whole:
    name: str
    parts: tuple[Part, ...]
    by_name: dict[str, Part]
    nothing: None = None


def test_dataclasses_become_plain_objects_at_every_depth() -> None:
    part = Part((1, 2))
    plain = {"sizes": [1, 2]}
    wanted = {"name": "x", "parts": [plain], "by_name": {"a": plain}, "nothing": None}
    assert to_json_object(Whole("x", (part,), {"a": part})) == wanted
    assert to_json_object({"whole": part}) == {"whole": plain}


@pytest.mark.parametrize("value", [None, "1", True, math.inf, math.nan, [1]])
def test_anything_but_a_finite_number_becomes_nan(value: object) -> None:
    assert math.isnan(number(value))
    assert number(3) == 3.0


@dataclass(frozen=True)
class Inner:
    count: int


@dataclass(frozen=True)
class Outer:
    name: str
    share: float
    inner: Inner
    limit: float | None
    shape: tuple[int, int] = (1, 1)
    names: tuple[str, ...] = ()
    rows: Mapping[str, Sequence[float]] = field(default_factory=dict)


def test_a_dataclass_reads_back_what_was_written() -> None:
    whole = Outer("a", 0.5, Inner(3), 2.5, (4, 5), ("x", "y"), {"r": [0.25]})
    assert from_json_object(Outer, json.loads(json.dumps(to_json_object(whole)))) == whole


def test_missing_fields_have_their_default_and_unknown_names_are_ignored() -> None:
    found = from_json_object(Outer, {"name": 7, "share": 1, "inner": {"count": "3"}, "other": 1})
    assert found == Outer("7", 1.0, Inner(3), None)
    assert isinstance(found.share, float)


def test_a_null_is_no_number_and_a_missing_number_only_in_a_partial_record() -> None:
    value = {"name": "a", "inner": {"count": 1}}
    assert math.isnan(from_json_object(Outer, {**value, "share": None}).share)
    assert math.isnan(from_json_object(Outer, value, partial=True).share)
    with pytest.raises(KeyError, match="share"):
        from_json_object(Outer, value)


def test_known_fields_are_taken_as_they_are() -> None:
    assert from_json_object(Outer, {"name": "a", "share": 1}, inner=Inner(9)).inner == Inner(9)


@pytest.mark.parametrize("shape", [[1], [1, 2, 3], "ab", 1])
def test_a_value_of_another_type_is_refused(shape: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        from_json_object(Outer, {"name": "a", "share": 1, "inner": {"count": 1}, "shape": shape})
