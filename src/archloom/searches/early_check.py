"""Check settings before torch is imported: a typing error is answered at once.

The full check (`SearchSpec.resolve`) follows and decides. This one finds unknown names, unknown settings, wrong types
and the rules of sections that need no torch; what it finds, the full check would refuse with the same lines.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from archloom.benchmarks import BENCHMARKS, is_file
from archloom.core.errors import SettingError, suggestion
from archloom.core.files import data_folder, exists, expand
from archloom.core.json_schema import Schema
from archloom.core.problems import Problems
from archloom.core.recipes import SpecSource, read_recipe
from archloom.core.registry import Catalogue
from archloom.core.renames import RenamedSettingWarning, rename_settings
from archloom.core.schema_check import check_top_level, find_table, list_problems, read_schema
from archloom.core.settings import Settings, check, merge
from archloom.data import DATA, DEFAULT_DATA
from archloom.data.facts import PUBLISHED, describe_missing_folder
from archloom.data.places import GIVEN, locate_data
from archloom.searches.race_settings import RaceSettings
from archloom.searches.search_settings import SearchSettings
from archloom.spaces import SPACES
from archloom.strategies import STRATEGIES

CATALOGUES: Mapping[str, tuple[Catalogue, str]] = {
    "space": (SPACES, "nb201"),
    "strategy": (STRATEGIES, "gibbs"),
    "data": (DATA, DEFAULT_DATA),
}
RULES: Mapping[str, type] = {"search": SearchSettings, "race": RaceSettings}  # their checks need no torch


def check_early(given: Settings, *, kind: Literal["search", "retrain"] = "search", needs_data: bool = False) -> None:
    """Raise a SettingError for everything that is wrong with a recipe, as far as it can be known without torch.

    Args:
        given: the settings of the recipe.
        kind: what it is for.
        needs_data: a run follows, so its data must be there.
    """
    problems = Problems()
    with warnings.catch_warnings(record=True) as renamed:  # the full check tells the user, if it is reached
        warnings.simplefilter("always", RenamedSettingWarning)
        tables = rename_settings(given)
    folder = tables.get("data", {}).get("directory") if isinstance(tables.get("data"), Mapping) else None
    if folder is not None and not exists(expand(folder)):
        problems.add(f"no data folder {folder}; check --data-dir")
    if isinstance(tables.get("data"), Mapping):
        tables = {**tables, "data": problems.attempt(lambda: locate_data(tables["data"])) or {}}
    _check_table(tables, problems)
    if needs_data:
        _check_folder(tables.get("data", {}), problems)
    names = {section: _find_name(tables, section, problems) for section in CATALOGUES if section in tables}
    document = read_schema(kind)
    if document is not None:
        tables = _check_preset(document, tables, names.get("strategy", ""), problems)
        problems.add(*list_problems(document, tables, names))
    if not len(problems):
        for section, settings in RULES.items():
            problems.attempt(lambda section=section, settings=settings: _try(tables, section, settings))  # type: ignore[misc]
    if len(problems):
        for note in renamed:
            warnings.warn(note.message, stacklevel=2)
    problems.raise_if_any()


def _check_folder(table: Settings, problems: Problems) -> None:
    """Note a published data set without a folder to read it from."""
    name = str(table.get("name", DEFAULT_DATA)) if isinstance(table, Mapping) else DEFAULT_DATA
    if name in PUBLISHED and data_folder(table.get("directory")) is None:
        problems.add(describe_missing_folder(name))


def _check_table(tables: Settings, problems: Problems) -> None:
    """Note a benchmark table that is not there: a search would look for it after it has planned its budget."""
    section = tables.get("search")
    table = section.get("table") if isinstance(section, Mapping) else None
    if not isinstance(table, str) or ":" in table:
        return
    if not is_file(table):
        problems.attempt(lambda: BENCHMARKS.find(table))
    elif not exists(expand(table)):
        problems.add(f"search.table must be a CSV file that exists, got '{table}'")


def check_file_early(
    command: Literal["compare", "run"], source: SpecSource, overrides: Settings, *, in_searches: Settings | None = None
) -> None:
    """Do the same for the file of a comparison or a pipeline.

    Args:
        command: which of the two.
        source: the file.
        overrides: settings that override those of the file.
        in_searches: settings that override those of every search.
    """
    problems, tables = Problems(), merge(source.settings, overrides)
    document = read_schema(command)
    problems.add(*([] if document is None else check_top_level(document, tables)))
    problems.raise_if_any()
    searches = {"search: ": tables.get("search", {})} if command == "run" else _list_entries(tables)
    for prefix, table in searches.items():
        problems.attempt(
            lambda table=table: check_early(_with_recipe(table, source.beside, in_searches or {})),  # type: ignore[misc]
            prefix=prefix,
        )
    if command == "run":
        retrain = {name: value for name, value in tables.get("retrain", {}).items() if name != "recipe"}
        problems.attempt(lambda: check_early(retrain, kind="retrain"), prefix="retrain: ")
    problems.raise_if_any()


def _list_entries(tables: Settings) -> dict[str, Settings]:
    shared = tables.get("all", {})
    return {
        f"entry {name}: ": merge({k: v for k, v in table.items() if k == "recipe"}, shared, table)
        for name, table in tables.get("entry", {}).items()
        if isinstance(table, Mapping)
    }


def _with_recipe(table: Settings, beside: Path, overrides: Settings) -> Settings:
    own = {name: value for name, value in table.items() if name not in ("seeds", "seed", "recipe")}
    return merge(read_recipe(table.get("recipe"), beside), own, overrides)


def _check_preset(document: Schema, tables: Settings, strategy: str, problems: Problems) -> Settings:
    """Return the tables without the preset of the strategy, which is no setting; an unknown one is a problem."""
    table = find_table(document, "strategy", strategy) if strategy else None
    if table is None or "preset" not in tables["strategy"]:
        return tables
    preset, known = tables["strategy"]["preset"], table["properties"].get("preset", {}).get("enum", ())
    if preset not in known:
        problems.add(f"unknown preset '{preset}' of the strategy{suggestion(str(preset), known)}")
    return {**tables, "strategy": {name: value for name, value in tables["strategy"].items() if name != "preset"}}


def _find_name(tables: Settings, section: str, problems: Problems) -> str:
    """Return the name in a section if it is known, '' for a plug-in, whose settings only its code has."""
    catalogue, default = CATALOGUES[section]
    table = tables[section]
    name = str(table.get("name", default)) if isinstance(table, Mapping) else default
    if name in catalogue:
        return name
    if ":" not in name and name != GIVEN:
        problems.attempt(lambda: catalogue.find(name))
    return ""


def _try(tables: Settings, section: str, kind: type) -> Any:
    values, lines = check(section, kind, tables.get(section, {}))
    if lines:
        raise SettingError(lines)
    return kind(**values)
