"""Typed values as JSON objects, and numbers from JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from archloom.core.json_object import number, to_json_object


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
