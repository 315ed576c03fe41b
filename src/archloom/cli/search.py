"""`archloom search`: find an architecture."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from archloom.cli.interactive import note_unless, run_interactively
from archloom.cli.options import (
    COST,
    HOW,
    WHAT,
    WHERE,
    Assignments,
    DataDir,
    Device,
    Quiet,
    RunOut,
    Seed,
    Threads,
    data_settings,
    drop_unset,
)
from archloom.cli.outcome import print_outcome
from archloom.cli.serve import serve_beside
from archloom.core.errors import SettingError
from archloom.core.recipes import find_recipe
from archloom.core.settings import Settings, merge, parse_assignments, read_toml

if TYPE_CHECKING:  # torch is imported when a search begins, not to print help
    from archloom.searches.spec import SearchSpec


def search(
    recipe: Annotated[
        str | None, typer.Argument(help="A TOML file, or the name of a shipped recipe (archloom list recipes).")
    ] = None,
    *,
    space: Annotated[
        str | None, typer.Option(help="Search space (archloom list spaces). Default: nb201.", rich_help_panel=WHAT)
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(help="Strategy (archloom list strategies). Default: gdas.", rich_help_panel=WHAT)
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="A named set of settings of the strategy.", rich_help_panel=WHAT)
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Data set (archloom list data). Default: digits.", rich_help_panel=WHAT)
    ] = None,
    data_dir: DataDir = None,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of the shared weights (one-shot strategies).", rich_help_panel=HOW)
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="Architectures to score (black-box strategies).", rich_help_panel=HOW)
    ] = None,
    seed: Seed = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step.", rich_help_panel=HOW)] = None,
    channels: Annotated[
        int | None, typer.Option(help="Width of the network's first stage.", rich_help_panel=HOW)
    ] = None,
    assignments: Assignments = None,
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
        typer.Option("--strict-target", help="Continue the search until the target is met.", rich_help_panel=COST),
    ] = False,
    out: RunOut = None,
    device: Device = None,
    threads: Threads = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Also show the run as a live page in a browser.", rich_help_panel=WHERE)
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Search for an architecture, and say how good it is.

    Options override the recipe, and --set overrides both.
    Ctrl-C saves; archloom resume continues from there.
    """
    from archloom.execution.run import RunOptions
    from archloom.execution.run_folder import RunFolder
    from archloom.searches.run import RUNS, run_search

    options = {
        "seed": seed,
        "space": {"name": space},
        "strategy": {"name": strategy, "preset": preset},
        "data": data_settings(data, data_dir),
        "search": {"epochs": epochs, "trials": trials, "batch_size": batch_size},
        "network": {"channels": channels},
        "target": {**parse_target(target), "source": latency_source, "strict": strict_target or None},
        "machine": {"device": device, "torch_threads": threads},
    }
    spec = resolve_search(recipe, options, assignments or [])
    folder = out or RunFolder.next_free(RUNS, spec.stem)
    note_unless(quiet)(f"{spec.title}; run folder {folder}")
    with serve_beside(folder) if serve else nullcontext():
        run_interactively(
            lambda listener, stop: run_search(spec, out=folder, options=RunOptions([listener], stop)),
            print_outcome,
            folder=folder,
            quiet=quiet,
        )


def parse_target(target: str | None) -> Settings:
    """Return the metric and the value of a target, as the command line gives it."""
    if target is None:
        return {}
    metric, _, amount = target.partition("=")
    try:
        return {"metric": metric.strip(), "value": float(amount)}
    except ValueError as error:
        raise SettingError(f"--target must be METRIC=NUMBER such as latency=20, got '{target}'") from error


def resolve_search(recipe: str | None, options: Settings, assignments: list[str]) -> SearchSpec:
    """Return the search that a user asks for; a SettingError lists everything that is wrong with it."""
    from archloom.searches.spec import SearchSpec

    given = {} if recipe is None else read_toml(find_recipe(recipe))
    assigned, problems = parse_assignments(assignments)
    try:
        spec = SearchSpec.resolve(merge(given, drop_unset(options), assigned))
    except SettingError as error:
        raise SettingError([*problems, *error.problems]) from error
    folder = spec.data.directory
    if folder is not None and not folder.exists():  # even if the data need none: the table would not be found
        problems.append(f"no data folder {folder}; check --data-dir")
    if problems:
        raise SettingError(problems)
    return spec
