"""`archloom list schema`: JSON schemas of the TOML files, one for each command that takes a file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping

from archloom.comparisons.spec import ComparisonSettings
from archloom.core.json_schema import Schema, join_settings, table_schema
from archloom.core.registry import Catalogue
from archloom.core.settings import schema
from archloom.data import DATA
from archloom.data.text import TextData
from archloom.families import FAMILIES, family_of
from archloom.pipelines.spec import PipelineSettings
from archloom.retrainings.spec import SECTION_TYPES as RETRAIN_TYPES
from archloom.retrainings.spec import RetrainData, RetrainText
from archloom.searches.spec import SECTION_TYPES as SEARCH_TYPES
from archloom.searches.spec import DataSettings, TextSettings
from archloom.spaces import SPACES
from archloom.strategies import STRATEGIES

STANDARD = "https://json-schema.org/draft/2020-12/schema"
TEXT: Schema = {"type": "string"}
SEED: Schema = {"type": "integer", "minimum": 0, "default": 0, "description": "of everything that is random in a run"}
RECIPE: Schema = {**TEXT, "description": "name of a shipped recipe, or the path of a .toml file"}


def search_schema() -> Schema:
    """Return the schema of a recipe for `archloom search`."""
    return _document("A search", _table({"seed": SEED, **_search_sections()}))


def retrain_schema() -> Schema:
    """Return the schema of a recipe for `archloom retrain`: sections for all networks, and for each family."""
    sections = _table(_retrain_sections())
    return _document("A retraining", _table({**_retrain_sections(), **dict.fromkeys(FAMILIES, sections)}))


def comparison_schema() -> Schema:
    """Return the schema of a file for `archloom compare`."""
    top = table_schema(schema(ComparisonSettings))
    properties = top["properties"]
    entry = {"recipe": RECIPE, "seeds": properties["seeds"], **_search_sections()}
    figures = {"type": "object", "properties": {"source": TEXT}, "additionalProperties": {"type": "number"}}
    properties["all"] = {**properties["all"], **_table(_search_sections())}
    properties["entry"] = {**properties["entry"], "additionalProperties": _table(entry)}
    properties["published"] = {**properties["published"], "additionalProperties": figures}
    return _document("A comparison", top)


def pipeline_schema() -> Schema:
    """Return the schema of a file for `archloom run`."""
    top = table_schema(schema(PipelineSettings))
    for name, sections in (("search", _search_sections()), ("retrain", _retrain_sections())):
        top["properties"][name] = {**top["properties"][name], **_table({"recipe": RECIPE, **sections})}
    return _document("A pipeline", top)


SCHEMAS: Mapping[str, Callable[[], Schema]] = {
    "search": search_schema,
    "retrain": retrain_schema,
    "compare": comparison_schema,
    "run": pipeline_schema,
}


def _document(title: str, table: Schema) -> Schema:
    """Return a whole schema; what several parts of a file have in common stands in it once."""
    common = {
        "space": _choice(SPACES),
        "strategy": _choice(STRATEGIES),
        "network": join_settings(schema(family_of(SPACES[name].load()).network) for name in SPACES),
        "data": {"anyOf": list(_data_sets())},
        "any_space": _open_name(join_settings(schema(SPACES[name].load()) for name in SPACES)),
        "any_data": _open_name(
            join_settings(
                schema(part) for part in (RetrainData, RetrainText, *(entry.load() for entry in DATA.values()))
            )
        ),
        **{name: table_schema(schema(kind)) for name, kind in {**SEARCH_TYPES, **RETRAIN_TYPES}.items()},
    }
    used = {name: part for name, part in common.items() if f"'#/$defs/{name}'" in str(table)}
    return {"$schema": STANDARD, "title": f"{title} of archloom", **table, "$defs": used}


def _search_sections() -> dict[str, Schema]:
    return {name: _refer(name) for name in ("space", "strategy", "network", "data", *SEARCH_TYPES)}


def _retrain_sections() -> dict[str, Schema]:
    own = {"space": _refer("any_space"), "network": _refer("network"), "data": _refer("any_data")}
    return {**own, **{name: _refer(name) for name in RETRAIN_TYPES}}


def _refer(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _table(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "properties": dict(properties), "additionalProperties": False}


def _choice(catalogue: Catalogue) -> Schema:
    """Return the schema of a section that names one of a catalogue, or a plug-in with settings of its own."""
    return {"anyOf": [*_named(catalogue), _plugin()]}


def _named(catalogue: Catalogue) -> Iterator[Schema]:
    for name, entry in catalogue.items():
        target = entry.load()
        presets = {"preset": {"enum": list(target.presets)}} if getattr(target, "presets", {}) else {}
        described = {"const": name, "description": entry.describe()}
        table = table_schema(schema(target), name=described, **presets)
        yield {key: value for key, value in table.items() if key != "required"}


def _data_sets() -> Iterator[Schema]:
    for name, entry in DATA.items():
        described, read = {"const": name, "description": entry.describe()}, entry.load()
        common = TextSettings if inspect.signature(read).return_annotation == TextData.__name__ else DataSettings
        table = table_schema({**schema(common), **schema(read)}, name=described)
        yield {key: value for key, value in table.items() if key != "required"}
    yield _plugin()


def _plugin() -> Schema:
    name = {**TEXT, "pattern": ":", "description": "a plug-in, as package.module:Class"}
    return {"type": "object", "properties": {"name": name}, "required": ["name"]}


def _open_name(table: Schema) -> Schema:
    return {**table, "properties": {"name": TEXT, **table["properties"]}}
