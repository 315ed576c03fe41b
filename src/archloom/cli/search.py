"""`archloom search`: find an architecture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from archloom.cli.attend import attend
from archloom.cli.console import messages, say
from archloom.core.errors import SettingError
from archloom.core.recipes import find_recipe

if TYPE_CHECKING:
    from archloom.searches.spec import SearchSpec

CHOICE, LENGTH, COST, MACHINE = "What to search", "How to search", "What it may cost", "Where and how to run"


def search(
    recipe: Annotated[
        str | None, typer.Argument(help="A TOML file, or the name of a shipped recipe (archloom list recipes).")
    ] = None,
    *,
    space: Annotated[
        str | None, typer.Option(help="Search space (archloom list spaces). Default: nb201.", rich_help_panel=CHOICE)
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(help="Strategy (archloom list strategies). Default: gdas.", rich_help_panel=CHOICE)
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="A named set of settings of the strategy.", rich_help_panel=CHOICE)
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Data set (archloom list data). Default: digits.", rich_help_panel=CHOICE)
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="The folder of data sets and benchmark tables. Default: $ARCHLOOM_DATA.", rich_help_panel=CHOICE
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of the shared weights (one-shot strategies).", rich_help_panel=LENGTH)
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="Architectures to score (black-box strategies).", rich_help_panel=LENGTH)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Everything random follows from it.", rich_help_panel=LENGTH)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step.", rich_help_panel=LENGTH)] = None,
    channels: Annotated[
        int | None, typer.Option(help="Width of the network's first stage.", rich_help_panel=LENGTH)
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.NAME=VALUE",
            help="Any setting, as often as needed; wins over options and recipe.",
            rich_help_panel=LENGTH,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC=VALUE",
            help="What the architecture should cost: latency=20 (ms), multiply_adds=60e6 or parameters=1e6.",
            rich_help_panel=COST,
        ),
    ] = None,
    latency_source: Annotated[
        str | None,
        typer.Option(
            help="Where latencies come from: a device of the table (pixel3), your own .csv, or a .json that "
            "archloom latency fit wrote.",
            rich_help_panel=COST,
        ),
    ] = None,
    strict_target: Annotated[
        bool,
        typer.Option("--strict-target", help="Go on until the target is met.", rich_help_panel=COST),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="The run's folder. Default: the next free one in runs/.", rich_help_panel=MACHINE),
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1, mps.", rich_help_panel=MACHINE)] = None,
    threads: Annotated[int | None, typer.Option(help="Threads on the CPU.", rich_help_panel=MACHINE)] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only the result.", rich_help_panel=MACHINE)
    ] = False,
) -> None:
    """Search for an architecture, and say how good it is.

    What a recipe says is overruled by options, and both by --set.
    Ctrl-C saves; archloom resume goes on from there.
    """
    from archloom.execution.run import RunOptions
    from archloom.execution.run_folder import RunFolder
    from archloom.searches.run import RUNS, run_search

    options = {
        "seed": seed,
        "space": {"name": space},
        "strategy": {"name": strategy, "preset": preset},
        "data": {"name": data, "directory": None if data_dir is None else str(data_dir.expanduser().absolute())},
        "search": {"epochs": epochs, "trials": trials, "batch_size": batch_size},
        "network": {"channels": channels},
        "target": {**aimed_at(target), "source": latency_source, "strict": strict_target or None},
        "machine": {"device": device, "torch_threads": threads},
    }
    experiment = resolved(recipe, options, assignments or [])
    directory = out or RunFolder.next_free(RUNS, experiment.stem)
    if not quiet:
        say(f"{experiment.title}; run folder {directory}", console=messages())
    attend(
        lambda listener, stop: run_search(experiment, out=directory, options=RunOptions([listener], stop)),
        directory=directory,
        quiet=quiet,
    )


def aimed_at(target: str | None) -> dict[str, Any]:
    """The metric and the value of a target, as it is written on the command line."""
    if target is None:
        return {}
    metric, _, amount = target.partition("=")
    try:
        return {"metric": metric.strip(), "value": float(amount)}
    except ValueError as error:
        raise SettingError(f"--target must be METRIC=NUMBER such as latency=20, got '{target}'") from error


def resolved(recipe: str | None, options: dict[str, Any], assignments: list[str]) -> SearchSpec:
    """The experiment asked for, or a SettingError with everything that is wrong with it."""
    from archloom.core.settings import merge, parse_assignments, read_toml
    from archloom.searches.spec import SearchSpec

    given = {} if recipe is None else read_toml(find_recipe(recipe))
    assigned, problems = parse_assignments(assignments)
    settings = merge(given, said(options), assigned)
    try:
        experiment = SearchSpec.resolve(settings)
    except SettingError as error:
        problems += error.problems
    else:
        problems += _missing_folder(experiment)
    if problems:
        raise SettingError(problems)
    return experiment


def said(options: dict[str, Any]) -> dict[str, Any]:
    """Only the options that the user gave."""
    tables = {name: said(value) for name, value in options.items() if isinstance(value, dict)}
    plain = {name: value for name, value in options.items() if not isinstance(value, dict) and value is not None}
    return plain | {name: table for name, table in tables.items() if table}


def _missing_folder(experiment: SearchSpec) -> list[str]:
    """A data folder that is not there, even where the data need none: the table would silently not be found."""
    folder = experiment.data.directory
    return [] if folder is None or folder.exists() else [f"no data folder {folder}; check --data-dir"]
