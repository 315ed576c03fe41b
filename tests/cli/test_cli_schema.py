"""Schemas of recipes are up to date, and every shipped recipe is valid by the schema that it names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from archloom.cli.schema import SCHEMAS
from archloom.core.recipes import shipped
from archloom.core.settings import read_toml

FOLDER = Path(__file__).parents[2] / "recipes" / "schema"
TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def errors(value: Any, part: dict[str, Any], whole: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield what is invalid, by the keywords that our schemas use."""
    if "$ref" in part:
        part = whole["$defs"][part["$ref"].rpartition("/")[2]]
    if "anyOf" in part:
        found = [list(errors(value, option, whole, path)) for option in part["anyOf"]]
        if all(found):
            yield min(found, key=len)[0]
    wanted = part.get("type")
    if wanted and (not isinstance(value, TYPES[wanted]) or (type(value) is bool) != (wanted == "boolean")):
        yield f"{path} is no {wanted}: {value!r}"
    elif "enum" in part and value not in part["enum"]:
        yield f"{path} is none of {part['enum']}: {value!r}"
    elif "const" in part and value != part["const"]:
        yield f"{path} is not {part['const']!r}: {value!r}"
    elif "pattern" in part and not re.search(part["pattern"], value):
        yield f"{path} does not match {part['pattern']}: {value!r}"
    elif isinstance(value, dict):
        yield from (f"{path}.{name} is missing" for name in part.get("required", ()) if name not in value)
        for name, item in value.items():
            inner = part.get("properties", {}).get(name, part.get("additionalProperties", True))
            if inner is False:
                yield f"{path}.{name} is unknown"
            elif isinstance(inner, dict):
                yield from errors(item, inner, whole, f"{path}.{name}")
    elif isinstance(value, list) and "items" in part:
        for item in value:
            yield from errors(item, part["items"], whole, path)


@pytest.fixture(scope="module")
def schemas() -> dict[str, dict[str, Any]]:
    return {name: make() for name, make in SCHEMAS.items()}


@pytest.mark.parametrize("name", SCHEMAS)
def test_stored_schemas_are_up_to_date(name: str, schemas: dict[str, dict[str, Any]]) -> None:
    stored = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    assert stored == json.loads(json.dumps(schemas[name])), "run `make schema`"


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_recipe_names_its_schema_and_is_valid(name: str, schemas: dict[str, dict[str, Any]]) -> None:
    path = shipped()[name]
    line = path.read_text(encoding="utf-8").splitlines()[1]
    assert line.startswith("#:schema ")
    file = (path.parent / line.removeprefix("#:schema ")).resolve()
    kind = name.partition("/")[0]
    assert file == FOLDER / f"{kind if kind in schemas else 'search'}.json"
    whole = schemas[file.stem]
    assert list(errors(read_toml(path), whole, whole)) == []


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("search", {"serch": {}}),
        ("search", {"search": {"epochs": "ten"}}),
        ("search", {"strategy": {"name": "gdas", "order": "first"}}),
        ("search", {"strategy": {"name": "gibbs", "logits": {"rate": 1}}}),
        ("search", {"strategy": {"name": "gdsa"}}),
        ("retrain", {"darts": {"training": {"epoch": 1}}}),
        ("compare", {"entry": {"a": {"search": {"trials": 1.5}}}}),
        ("compare", {"limit": {"latency": {"device": 3}}}),
        ("run", {"search": {"weights": {"clip": True}}}),
    ],
)
def test_mistakes_are_invalid(kind: str, given: dict[str, Any], schemas: dict[str, dict[str, Any]]) -> None:
    assert list(errors(given, schemas[kind], schemas[kind])) != []


def test_list_schema_prints_one(archloom: Callable[..., Any]) -> None:
    printed = archloom("list", "schema", "compare")
    assert json.loads(printed.out)["title"] == "A comparison of archloom"
    assert json.loads(archloom("list", "schema").out)["title"] == "A search of archloom"
    assert "no schema 'serch'; did you mean 'search'?" in archloom("list", "schema", "serch").err
