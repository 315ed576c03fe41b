"""`archloom list`: what there is, and the settings of each. Names are listed without importing torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any

import typer
from rich.console import Console

from archloom.cli.console import make_table, open_result_console, print_line
from archloom.core.errors import SettingError, suggestion
from archloom.core.lazy_imports import lazy_imports
from archloom.core.recipes import NOT_SEARCHES, shipped, summary
from archloom.core.registry import Catalogue, Entry
from archloom.core.settings import Settings, expected, flat_schema
from archloom.data import DATA
from archloom.spaces import SPACES
from archloom.strategies import STRATEGIES

with lazy_imports():  # help needs no torch
    import archloom.cli.schema as schemas
    import archloom.families as families

SECTIONS = Catalogue(
    "section",
    {
        "search": Entry(
            "archloom.searches.search_settings:SearchSettings", summary="How long and how closely to search."
        ),
        "target": Entry(
            "archloom.objectives.target:TargetSettings", summary="What the architecture found should cost."
        ),
        "weights": Entry("archloom.supernet.weight_settings:WeightSettings", summary="How shared weights are trained."),
        "data": Entry("archloom.searches.spec:DataSettings", summary="What every data set has."),
        "monitor": Entry("archloom.searches.monitor:MonitorSettings", summary="How closely a search is watched."),
        "posterior": Entry(
            "archloom.searches.posterior_phase:PosteriorPhaseSettings",
            summary="Parallel chains at the end of a search with gibbs.",
        ),
        "machine": Entry("archloom.execution.machine:Machine", summary="Where a search runs."),
        "training": Entry(
            "archloom.retrainings.loop:TrainingSettings", summary="How long and how to train one network."
        ),
        "optimizer": Entry(
            "archloom.retrainings.optimization:OptimizerSettings", summary="SGD, and its learning rate."
        ),
    },
)
CATALOGUES: Mapping[str, Catalogue] = {"strategies": STRATEGIES, "spaces": SPACES, "data": DATA, "settings": SECTIONS}
RECIPES, SCHEMA = "recipes", "schema"
KINDS = (*CATALOGUES, RECIPES, SCHEMA)

Rows = Iterator[tuple[str, ...]]


def list_names(
    kind: Annotated[str, typer.Argument(help="strategies, spaces, data, recipes, settings or schema.")],
    name: Annotated[str | None, typer.Argument(help="Show the settings of this one.")] = None,
) -> None:
    """List strategies, spaces, data sets, recipes, or settings.

    With a name: every setting of it, as --set and recipes take it. `schema` prints the JSON schema of recipes, for
    editors; its names are search, retrain, compare and run.
    """
    console = open_result_console()
    if kind == RECIPES:
        _list_recipes(console, name)
    elif kind == SCHEMA:
        _print_schema(name or "search")
    elif kind not in CATALOGUES:
        raise SettingError(f"cannot list '{kind}'{suggestion(kind, KINDS)}")
    elif name is None:
        catalogue = CATALOGUES[kind]
        console.print(make_table(("name", "what it is"), ((key, entry.describe()) for key, entry in catalogue.items())))
        print_line(f"\nsettings of one: archloom list {kind} NAME", console=console)
    else:
        _show_settings(console, kind, name)


def _print_schema(name: str) -> None:

    if name not in schemas.SCHEMAS:
        raise SettingError(f"no schema '{name}'{suggestion(name, schemas.SCHEMAS)}")
    typer.echo(json.dumps(schemas.SCHEMAS[name](), indent=1))


def _list_recipes(console: Console, name: str | None) -> None:
    found = shipped()
    if name is None:
        for title, names in _kinds_of_recipes(found).items():
            print_line(title, console=console)
            console.print(make_table(("name", "what it is"), ((key, summary(found[key])) for key in names)))
            print_line("", console=console)
    elif name in found:
        print_line(found[name].read_text(encoding="utf-8").rstrip(), console=console)
    else:
        raise SettingError(f"no recipe '{name}'{suggestion(name, found)}")


def _kinds_of_recipes(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the recipes by the command that each is for."""
    kinds: dict[str, list[str]] = {"For archloom search:": []}
    for name in names:
        command = next((folder for folder in NOT_SEARCHES if name.startswith(folder)), "search/").rstrip("/")
        option = " --recipe" if command == "retrain" else ""
        kinds.setdefault(f"For archloom {command}{option}:", []).append(name)
    return {title: listed for title, listed in kinds.items() if listed}


def _show_settings(console: Console, kind: str, name: str) -> None:
    entry = CATALOGUES[kind].find(name)
    target = entry.load()
    print_line(entry.describe() or name, console=console)
    columns = ("setting", "kind", "default", "meaning")
    rows = [row for section, part in _parts(kind, name, target) for row in _rows(section, part, entry.settings)]
    if rows:
        console.print(make_table(columns, rows))
    else:
        print_line("it has no settings", console=console)
    presets = getattr(target, "presets", {})
    if presets:
        print_line(f"presets (--preset NAME): {', '.join(presets)}", console=console)


def _parts(kind: str, name: str, target: Any) -> list[tuple[str, Callable[..., Any]]]:
    """Return the settings of a name by section; a space includes its network."""
    if kind == "settings":
        return [(name, target)]
    own = {"strategies": "strategy", "spaces": "space", "data": "data"}[kind]
    if kind != "spaces":
        return [(own, target)]

    return [(own, target), ("network", families.family_of(target).network)]


def _rows(section: str, target: Callable[..., Any], settings: Settings) -> Rows:
    named = {f"{section}.{name}": value for name, value in settings.items()}
    for path, setting in flat_schema(target, section).items():
        default = "must be given" if setting.required else _format_default(named.get(path, setting.default))
        yield path, expected(setting.type), default, setting.help


def _format_default(value: object) -> str:
    """Return a default as TOML has it."""
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ", ".join(_format_default(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
