"""A schema accepts what the settings accept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_doc import Doc

from archloom.core.json_schema import join_settings, table_schema, type_schema
from archloom.core.settings import schema


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: Annotated[float, Doc("learning rate")] = 0.1


def target(*, mode: Annotated[Literal["a", "b"], Doc("which")] = "a", inner: Inner = Inner(), must: int) -> None: ...


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (bool, {"type": "boolean"}),
        (int | None, {"type": "integer"}),
        (float, {"type": "number"}),
        (Path, {"type": "string", "format": "path"}),
        (str | list[int], {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        ),
        (Mapping[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (Any, {}),
    ],
)
def test_types_have_schemas(wanted: Any, expected: dict[str, Any]) -> None:
    assert type_schema(wanted) == expected


def test_a_table_has_help_defaults_and_inner_tables() -> None:
    table = table_schema(schema(target), name={"const": "x"})
    assert table["required"] == ["must"] and table["additionalProperties"] is False
    assert table["properties"]["name"] == {"const": "x"}
    assert table["properties"]["mode"] == {"enum": ["a", "b"], "description": "which", "default": "a"}
    inner = table["properties"]["inner"]
    assert inner["properties"]["rate"] == {"type": "number", "description": "learning rate", "default": 0.1}
    assert inner["default"] == {"rate": 0.1}


def test_joined_tables_accept_the_settings_of_each() -> None:
    def other(*, mode: int = 3, more: bool = True) -> None: ...

    joined = join_settings([schema(target), schema(other)])["properties"]
    assert list(joined) == ["mode", "inner", "must", "more"]
    assert [part.get("type", "enum") for part in joined["mode"]["anyOf"]] == ["enum", "integer"]
