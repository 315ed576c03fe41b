"""`archloom retrain`: train an architecture from scratch, and say how good the model is."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from archloom.cli.completion import complete_retraining, complete_run
from archloom.cli.console import make_fact_table, print_line
from archloom.cli.interactive import note_unless, run_interactively
from archloom.cli.joining import join_ranks
from archloom.cli.options import (
    Assignments,
    DataDir,
    Device,
    Devices,
    OwnImages,
    Quiet,
    RunOut,
    Seed,
    Threads,
    data_settings,
    how_option,
    merge_options,
    what_option,
)
from archloom.cli.start import seconds_since_start
from archloom.core.errors import (
    escape_controls,
)
from archloom.core.lazy_imports import lazy_imports
from archloom.core.recipes import RUNS, find_retraining

with lazy_imports():  # help needs no torch
    import archloom.execution.run as execution_run
    import archloom.execution.run_folder as run_folder
    import archloom.reports.tables as tables
    import archloom.retrainings.evaluation as evaluations
    import archloom.retrainings.result as retrain_result
    import archloom.retrainings.run as retrain_run
    import archloom.retrainings.text_evaluation as text_evaluations
    import archloom.searches.early_check as early_check


def retrain(
    architecture: Annotated[
        str,
        typer.Argument(
            metavar="ARCHITECTURE",
            help="The run that found it, a JSON file, a text form (NB201 string, DARTS genotype), or a published name.",
            autocompletion=complete_run,
        ),
    ],
    *,
    recipe: Annotated[
        str,
        how_option(help="A TOML file or a shipped recipe (archloom list recipes).", autocompletion=complete_retraining),
    ] = "auto",
    budget: Annotated[str | None, how_option(help="Time for the recipe auto: 30m, 2h. Default: 30m.")] = None,
    epochs: Annotated[int | None, how_option(help="Epochs instead of the recipe's.")] = None,
    seed: Seed = None,
    assignments: Assignments = None,
    space: Annotated[str | None, what_option(help="The space of a text form that fits several.")] = None,
    data: Annotated[
        str | None,
        what_option(help="Data set (archloom list data) or the path of your images. Default: that of the run."),
    ] = None,
    data_dir: DataDir = None,
    path: OwnImages = None,
    out: RunOut = None,
    device: Device = None,
    threads: Threads = None,
    devices: Devices = 1,
    quiet: Quiet = False,
) -> None:
    """Train an architecture from scratch, and say how good the model is.

    Ctrl-C saves; archloom resume, or the same command with the same --out, continues.
    """
    joined = join_ranks(devices, device)
    quiet = quiet or not joined.is_first
    options = {
        "seed": seed,
        "space": {"name": space},
        "data": data_settings(data, data_dir, path),
        "training": {"epochs": epochs},
        "machine": {"device": joined.device, "torch_threads": threads},
    }
    is_missing = data_dir is not None and not data_dir.expanduser().exists()
    problems = [f"no data folder {data_dir}; check --data-dir"] if is_missing else []
    overrides = merge_options(options, assignments, problems)
    find_retraining(recipe)
    early_check.check_early({name: value for name, value in overrides.items() if name != "seed"}, kind="retrain")
    request = retrain_run.resolve_request(architecture, recipe=recipe, budget=budget, overrides=overrides)
    folder, note = out or run_folder.RunFolder.next_free(RUNS, request.spec.stem), note_unless(quiet)
    note(f"{request.spec.title}; run folder {folder}")
    run_interactively(
        lambda listener, stop: retrain_run.run_retraining(
            request,
            out=folder,
            options=execution_run.RunOptions(
                [listener], stop, warn=note, ranks=joined.ranks, spent=seconds_since_start()
            ),
            note=note,
        ),
        print_model,
        folder=folder,
        quiet=quiet,
    )


def print_model(result: retrain_result.RetrainResult, console: Console) -> None:
    """Print how good the model is, what it confuses, and what to do with it; readable in 80 columns."""
    console.print(Rule(Text(escape_controls(result.title), style="bold"), align="left", characters="─"))
    if result.caution:
        console.print(result.caution)
        console.print()
    print_line(result.text, console=console)  # whole and on a line of its own, to be copied
    console.print()
    console.print(make_fact_table(_list_facts(result)))
    console.print()
    run = shlex.quote(str(result.folder))
    print_line(f"model: {result.model}", console=console)
    print_line(f"report: {result.report}", console=console)
    print_line(f"use it elsewhere: archloom export {run}", console=console)
    inputs = "IMAGES..." if result.classes else "TEXT_FILE"
    print_line(f"try it: archloom predict {run} {inputs}", console=console)


def _list_facts(result: retrain_result.RetrainResult) -> Iterator[tuple[str, str]]:

    for name, found in (("Test", result.test), ("Validation", result.valid)):
        if isinstance(found, text_evaluations.TextEvaluation):
            yield f"{name} perplexity", f"{found.perplexity:,.2f} on {found.words:,} words"
        elif found is not None:
            top = f" (top {evaluations.TOP}: {found.top5:.2f} %)" if len(result.classes) > evaluations.TOP else ""
            yield f"{name} accuracy", f"{found.top1:.2f} % of {found.images:,} images{top}"
    if isinstance(result.evaluation, evaluations.Evaluation):
        yield from _list_classes(result.evaluation, result.classes)
    yield "Model of epoch", f"{result.best_epoch + 1} of {result.run.records}"
    yield from tables.cost_facts(result.cost)
    threads = f"{result.run.threads} thread{'' if result.run.threads == 1 else 's'}"
    yield "Time", f"{tables.duration(result.run.seconds)} on {result.run.device}, {threads}"
    yield "Peak memory", tables.whole(result.run.peak_memory_mb, unit=" MB")
    for line in result.changed:
        yield "Changed", line


def _list_classes(evaluation: evaluations.Evaluation, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    known = [(share, name) for share, name in zip(evaluation.per_class, names, strict=True) if share is not None]
    for label, (share, name) in (("Best class", max(known)), ("Worst class", min(known))):
        yield label, f"{name}, {share:.1f} %"
    pairs = evaluation.confused_pairs(most=3)
    if pairs:
        written = (f"{names[truth]} taken for {names[predicted]} ({count})" for truth, predicted, count in pairs)
        yield "Most confused", "; ".join(written)
