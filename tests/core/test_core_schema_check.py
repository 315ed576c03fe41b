from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_doc import Doc

from archloom.core.json_schema import table_schema, type_schema
from archloom.core.schema_check import check_top_level, list_problems, read_schema, read_type
from archloom.core.settings import check, schema


@dataclass(frozen=True, kw_only=True)
class Inner:
    steps: Annotated[int, Doc("")] = 3
    rate: float | None = None


@dataclass(frozen=True, kw_only=True)
class Outer:
    count: int = 1
    rate: float = 0.5
    name_of: str = ""
    is_on: bool = True
    file: Path | None = None
    kind: Literal["a", "b"] = "a"
    pair: tuple[int, str] = (1, "x")
    many: list[float] | str = ""
    table: Mapping[str, int] | None = None
    inner: Inner = Inner()


GIVEN: list[dict[str, Any]] = [
    {"count": 1.5},
    {"count": True},
    {"count": 2**64},
    {"rate": "fast"},
    {"rate": 3},
    {"is_on": 1},
    {"file": 7},
    {"kind": "c"},
    {"pair": [1]},
    {"pair": [1, "x"]},
    {"many": [1, "x"]},
    {"many": [1, 2.5]},
    {"table": {"a": "b"}},
    {"inner": {"stepps": 3}},
    {"inner": {"steps": "x", "rate": 2}},
    {"cuont": 1, "count": "x"},
]


@pytest.mark.parametrize("given", GIVEN, ids=str)
def test_a_schema_finds_what_the_settings_themselves_find(given: dict[str, Any]) -> None:
    document = {"properties": {"outer": table_schema(schema(Outer))}}
    assert list_problems(document, {"outer": given}, {}) == check("outer", Outer, given)[1]


@pytest.mark.parametrize("wanted", [int, float, str, bool, Path, Literal["a", "b"], tuple[int, str], list[float]])
def test_types_survive_the_schema(wanted: Any) -> None:
    assert read_type(type_schema(wanted)) == wanted


def test_unknown_sections_and_settings_of_the_top_level_are_found() -> None:
    document = {"properties": {"outer": table_schema(schema(Outer)), "seed": {"type": "integer"}}}
    assert list_problems(document, {"outr": {}}, {}) == ["unknown section 'outr'; did you mean 'outer'?"]
    assert check_top_level(document, {"seed": "x", "outer": {"any": 1}}) == ["seed must be a whole number, got 'x'"]


@pytest.mark.parametrize("kind", ["search", "retrain", "compare", "run"])
def test_schemas_are_shipped(kind: str) -> None:
    found = read_schema(kind)
    assert found is not None and "properties" in found


def test_a_schema_that_is_not_there_checks_nothing() -> None:
    assert read_schema("no_such_command") is None
