"""Options that several commands share, declared once, and how they become settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from archloom.cli.completion import complete_comparison, complete_data, complete_run
from archloom.core.errors import SettingError, suggestion
from archloom.core.recipes import recipes, shipped
from archloom.core.settings import Settings, merge, parse_assignments
from archloom.data import DATA
from archloom.data.places import is_data_path, suggest_path

what_option = partial(typer.Option, rich_help_panel="What to run")
how_option = partial(typer.Option, rich_help_panel="How to run it")
cost_option = partial(typer.Option, rich_help_panel="What it may cost")
where_option = partial(typer.Option, rich_help_panel="Where to run it")
FAILED = 1  # exit code where jobs failed

AnyRun = Annotated[
    Path,
    typer.Argument(
        help="The folder of any run: a search, a retraining, a comparison or a pipeline.", autocompletion=complete_run
    ),
]
DataDir = Annotated[
    Path | None, what_option(help="The folder of data sets and benchmark tables. Default: $ARCHLOOM_DATA.")
]
OwnImages = Annotated[
    Path | None, what_option(help="Your own images: a folder with one folder per class, or an .npz file.")
]
Data = Annotated[
    str | None,
    what_option(
        help="Data set (archloom list data) or the path of your images. Default: strokes.", autocompletion=complete_data
    ),
]
Seed = Annotated[int | None, how_option(help="Everything random follows from it.")]
Seeds = Annotated[str | None, how_option(help="Seeds of the searches: 0-4, or 0-4,9.")]
Assignments = Annotated[
    list[str] | None,
    how_option(
        "--set",
        metavar="NAME=VALUE",
        help="Any setting by its dotted name, such as search.epochs=5; may be repeated. Overrides options and recipe.",
    ),
]
AtMost = Annotated[
    str | None,
    cost_option(
        metavar="METRIC=VALUE",
        help="What the final network may cost at most: multiply_adds=60e6, parameters=1e6 or latency=20 (ms).",
    ),
]
LatencySource = Annotated[
    str | None,
    cost_option(
        help="Where latencies come from: a device of the table (pixel3), your own .csv, or a .json that "
        "archloom latency fit wrote.",
    ),
]
Device = Annotated[str | None, where_option(help="auto, cpu, cuda, cuda:1, mps.")]
Threads = Annotated[int | None, where_option(help="Torch threads on the CPU.")]
Jobs = Annotated[int | None, where_option(min=1, help="Runs at the same time. Default: as many as cores allow.")]
On = Annotated[
    str,
    where_option(
        "--on",
        metavar="PLACE",
        help="Where jobs run: processes, serial, ray (the cluster of $RAY_ADDRESS), ray://HOST:PORT or slurm.",
    ),
]
Devices = Annotated[
    int, where_option("--devices", min=1, help="Compute every batch on so many devices of this machine, by torchrun.")
]
RunOut = Annotated[Path | None, where_option("--out", help="The run folder. Default: the next free one in runs/.")]
JobsOut = Annotated[Path | None, where_option("--out", help="The folder of all runs. Default: one in runs/.")]
DryRun = Annotated[bool, where_option("--dry-run", help="Only list the runs and the state of each.")]
Quiet = Annotated[bool, where_option("--quiet", "-q", help="Print only the result.")]


def split_recipe_and_data(given: str | None) -> tuple[str | None, str | None]:
    """Return the recipe and the data that a first argument names, one of them at most.

    A shipped recipe or a .toml file is a recipe; a data set or a path is data.
    """
    if given is None or given in shipped() or given.endswith(".toml"):
        return given, None
    if given in DATA or is_data_path(given):
        return None, given
    known = [*recipes(), *DATA]
    near = suggest_path(given) or suggestion(given, known)
    raise SettingError(f"no recipe or data set '{given}'{near} (or a path of data or of a .toml file)")


def refuse_second_data(first: str | None, options: Mapping[str, str | Path | None]) -> None:
    """Raise a SettingError where the first argument named data, and an option names data again."""
    again = next((f"{name} '{value}'" for name, value in options.items() if value is not None), None)
    if again is not None and first is not None:
        raise SettingError(f"data must be named once, got '{first}' and {again}")


def recipe_or_folder(metavar: str, kind: str) -> Any:
    """Return the argument of a command that begins a recipe, or continues in its folder."""
    text = f"A TOML file, a shipped {kind} (archloom list recipes), or the folder of an earlier one."
    return typer.Argument(metavar=metavar, help=text, autocompletion=complete_comparison)


def parse_cost(option: str, given: str | None) -> Settings:
    """Return the metric and the value that an option such as `--target latency=20` names."""
    if given is None:
        return {}
    metric, _, amount = given.partition("=")
    try:
        return {"metric": metric.strip(), "value": float(amount)}
    except ValueError as error:
        raise SettingError(f"{option} must be METRIC=NUMBER such as latency=20, got '{given}'") from error


def limit_settings(at_most: str | None, latency_source: str | None) -> Settings:
    """Return the section `limit`; the source is for a latency."""
    limit = parse_cost("--at-most", at_most)
    return {**limit, "source": latency_source if limit.get("metric") == "latency" else None}


def merge_options(options: Settings, assignments: Sequence[str] | None, problems: Sequence[str] = ()) -> Settings:
    """Return the settings that a user gave by options and, overriding them, by --set.

    Raises:
        SettingError: If there are problems already, or an assignment cannot be read.
    """
    assigned, unreadable = parse_assignments(list(assignments or []))
    if problems or unreadable:
        raise SettingError([*unreadable, *problems])
    return merge(drop_unset(options), assigned)


def drop_unset(options: Settings) -> Settings:
    """Return only the options that the user gave."""
    tables = {name: drop_unset(value) for name, value in options.items() if isinstance(value, dict)}
    plain = {name: value for name, value in options.items() if not isinstance(value, dict) and value is not None}
    return plain | {name: table for name, table in tables.items() if table}


def data_settings(name: str | None, data_dir: Path | None, path: Path | None = None) -> dict[str, str | None]:
    """Return the section `data`; own images are a data set by where they are."""
    if path is not None and name is None:
        name, path = str(path.expanduser().absolute()), None
    return {
        "name": name,
        "directory": None if data_dir is None else str(data_dir.expanduser().absolute()),
        "path": None if path is None else str(path.expanduser().absolute()),
    }
