"""`archloom search`: find an architecture."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import typer

from archloom.cli.completion import complete_search, complete_space, complete_strategy
from archloom.cli.interactive import note_unless, run_interactively
from archloom.cli.joining import join_ranks
from archloom.cli.options import (
    Assignments,
    AtMost,
    Data,
    DataDir,
    Device,
    Devices,
    LatencySource,
    On,
    Quiet,
    RunOut,
    Seed,
    Threads,
    cost_option,
    data_settings,
    drop_unset,
    how_option,
    limit_settings,
    parse_cost,
    refuse_second_data,
    split_recipe_and_data,
    what_option,
    where_option,
)
from archloom.cli.outcome import print_outcome
from archloom.cli.serve import serve_beside
from archloom.cli.start import seconds_since_start
from archloom.core.errors import SettingError, require
from archloom.core.lazy_imports import lazy_imports
from archloom.core.recipes import RUNS, find_recipe
from archloom.core.settings import Settings, merge, parse_assignments, read_toml

with lazy_imports():  # help needs no torch
    import archloom.execution.run as execution_run
    import archloom.execution.run_folder as run_folder
    import archloom.searches.early_check as early_check
    import archloom.searches.run as search_run
    import archloom.searches.spec as search_spec


def search(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA|RECIPE]",
            help="Your images (a folder with one folder per class, an .npz file, a Hugging Face data set on disk), a "
            "data set (archloom list data), or a recipe (a TOML file, or archloom list recipes).",
            autocompletion=complete_search,
        ),
    ] = None,
    *,
    space: Annotated[
        str | None,
        what_option(help="Search space (archloom list spaces). Default: nb201.", autocompletion=complete_space),
    ] = None,
    strategy: Annotated[
        str | None,
        what_option(help="Strategy (archloom list strategies). Default: gibbs.", autocompletion=complete_strategy),
    ] = None,
    preset: Annotated[str | None, what_option(help="A named set of settings of the strategy.")] = None,
    data: Data = None,
    data_dir: DataDir = None,
    budget: Annotated[
        str | None,
        how_option(help="Time for all of it, such as 10m: sizes, epochs and the finalist race are planned to fit."),
    ] = None,
    epochs: Annotated[int | None, how_option(help="Epochs of the shared weights (one-shot strategies).")] = None,
    trials: Annotated[int | None, how_option(help="Architectures to score (black-box strategies).")] = None,
    seed: Seed = None,
    batch_size: Annotated[int | None, how_option(help="Images per step.")] = None,
    channels: Annotated[int | None, how_option(help="Width of the network's first stage.")] = None,
    assignments: Assignments = None,
    target: Annotated[
        str | None,
        cost_option(
            metavar="METRIC=VALUE",
            help="What the final network should cost: latency=20 (ms), multiply_adds=60e6 or parameters=1e6.",
        ),
    ] = None,
    at_most: AtMost = None,
    latency_source: LatencySource = None,
    strict_target: Annotated[
        bool, cost_option("--strict-target", help="Continue the search until the target is met.")
    ] = False,
    out: RunOut = None,
    device: Device = None,
    threads: Threads = None,
    devices: Devices = 1,
    on: On = "processes",
    serve: Annotated[bool, where_option("--serve", help="Also show the run as a live page in a browser.")] = False,
    quiet: Quiet = False,
) -> None:
    """Search for an architecture, and say how good it is.

    Options override the recipe, and --set overrides both.
    Ctrl-C saves; archloom resume continues from there.
    """
    joined = join_ranks(devices, device)
    limit = limit_settings(at_most, latency_source)
    options = {
        "seed": seed,
        "space": {"name": space},
        "strategy": {"name": strategy, "preset": preset},
        "data": data_settings(data, data_dir),
        "search": {"budget": budget, "epochs": epochs, "trials": trials, "batch_size": batch_size},
        "network": {"channels": channels},
        "target": {
            **parse_cost("--target", target),
            "source": None if limit["source"] and target is None else latency_source,
            "strict": strict_target or None,
        },
        "limit": limit,
        "machine": {"device": joined.device, "torch_threads": threads},
    }
    spec = resolve_search(recipe, options, assignments or [], needs_data=True)
    folder = out or run_folder.RunFolder.next_free(RUNS, spec.stem)
    quiet = quiet or not joined.is_first
    note_unless(quiet)(f"{spec.title}; run folder {folder}")
    with serve_beside(folder) if serve else nullcontext():
        run_interactively(
            lambda listener, stop: search_run.run_search(
                spec,
                out=folder,
                options=execution_run.RunOptions(
                    [listener], stop, ranks=joined.ranks, on=on, spent=seconds_since_start()
                ),
            ),
            print_outcome,
            folder=folder,
            quiet=quiet,
        )


def resolve_search(
    recipe: str | None, options: Settings, assignments: list[str], *, needs_data: bool = False
) -> search_spec.SearchSpec:
    """Return the search that a user asks for; a SettingError lists everything that is wrong with it."""
    recipe, data = split_recipe_and_data(recipe)
    refuse_second_data(data, {"--data": options.get("data", {}).get("name")})
    given = {} if recipe is None else read_toml(find_recipe(recipe))
    named = {} if data is None else {"data": {"name": data}}
    assigned, problems = parse_assignments(assignments)
    settings = merge(given, named, drop_unset(options), assigned)
    try:
        early_check.check_early(settings, needs_data=needs_data)
        require(dict.fromkeys(problems, False))
        spec = search_spec.SearchSpec.resolve(settings)
    except SettingError as error:
        raise SettingError(list(dict.fromkeys([*problems, *error.problems]))) from error
    folder = spec.data.directory
    if folder is not None and not folder.exists():  # even if the data need none: the table would not be found
        problems.append(f"no data folder {folder}; check --data-dir")
    if problems:
        raise SettingError(problems)
    return spec
