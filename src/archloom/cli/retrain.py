"""`archloom retrain`: train an architecture from scratch, and say how good the model is."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from archloom.cli.console import make_fact_table, print_line
from archloom.cli.interactive import note_unless, run_interactively
from archloom.cli.options import (
    HOW,
    WHAT,
    Assignments,
    DataDir,
    Device,
    OwnImages,
    Quiet,
    RunOut,
    Seed,
    Threads,
    data_settings,
    merge_options,
)
from archloom.core.errors import escape_controls

if TYPE_CHECKING:  # torch is imported when training begins, not to print help
    from archloom.retrainings.evaluation import Evaluation
    from archloom.retrainings.result import RetrainResult


def retrain(
    architecture: Annotated[
        str,
        typer.Argument(
            metavar="ARCHITECTURE",
            help="The run that found it, a JSON file, a text form (NB201 string, DARTS genotype), or a published name.",
        ),
    ],
    *,
    recipe: Annotated[
        str, typer.Option(help="A TOML file or a shipped recipe (archloom list recipes).", rich_help_panel=HOW)
    ] = "auto",
    budget: Annotated[
        str | None, typer.Option(help="Time for the recipe auto: 30m, 2h. Default: 30m.", rich_help_panel=HOW)
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs instead of the recipe's.", rich_help_panel=HOW)] = None,
    seed: Seed = None,
    assignments: Assignments = None,
    space: Annotated[
        str | None, typer.Option(help="The space of a text form that fits several.", rich_help_panel=WHAT)
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Data set (archloom list data). Default: that of the run.", rich_help_panel=WHAT),
    ] = None,
    data_dir: DataDir = None,
    path: OwnImages = None,
    out: RunOut = None,
    device: Device = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Train an architecture from scratch, and say how good the model is.

    Ctrl-C saves; archloom resume, or the same command with the same --out, continues.
    """
    from archloom.execution.run import RunOptions
    from archloom.execution.run_folder import RunFolder
    from archloom.retrainings.run import resolve_request, run_retraining
    from archloom.searches.run import RUNS

    options = {
        "seed": seed,
        "space": {"name": space},
        "data": data_settings(data, data_dir, path),
        "training": {"epochs": epochs},
        "machine": {"device": device, "torch_threads": threads},
    }
    is_missing = data_dir is not None and not data_dir.expanduser().exists()
    problems = [f"no data folder {data_dir}; check --data-dir"] if is_missing else []
    overrides = merge_options(options, assignments, problems)
    request = resolve_request(architecture, recipe=recipe, budget=budget, overrides=overrides)
    folder, note = out or RunFolder.next_free(RUNS, request.spec.stem), note_unless(quiet)
    note(f"{request.spec.title}; run folder {folder}")
    run_interactively(
        lambda listener, stop: run_retraining(
            request, out=folder, options=RunOptions([listener], stop, warn=note), note=note
        ),
        print_model,
        folder=folder,
        quiet=quiet,
    )


def print_model(result: RetrainResult, console: Console) -> None:
    """Print how good the model is, what it confuses, and what to do with it; readable in 80 columns."""
    console.print(Rule(Text(escape_controls(result.title), style="bold"), align="left", characters="─"))
    print_line(result.text, console=console)  # whole and on a line of its own, to be copied
    console.print()
    if result.caution:
        console.print(result.caution)
        console.print()
    console.print(make_fact_table(_list_facts(result)))
    console.print()
    run = shlex.quote(str(result.folder))
    print_line(f"model: {result.model}", console=console)
    print_line(f"report: {result.report}", console=console)
    print_line(f"use it elsewhere: archloom export {run}", console=console)
    print_line(f"try it: archloom predict {run} IMAGES...", console=console)


def _list_facts(result: RetrainResult) -> Iterator[tuple[str, str]]:
    from archloom.reports.tables import cost_facts, duration, whole  # late: not needed for --help
    from archloom.retrainings.evaluation import TOP

    for name, found in (("Test", result.test), ("Validation", result.valid)):
        if found is not None:
            top = f" (top {TOP}: {found.top5:.2f} %)" if len(result.classes) > TOP else ""
            yield f"{name} accuracy", f"{found.top1:.2f} % of {found.images:,} images{top}"
    if result.evaluation is not None:
        yield from _list_classes(result.evaluation, result.classes)
    yield "Model of epoch", f"{result.best_epoch + 1} of {result.run.records}"
    yield from cost_facts(result.cost)
    threads = f"{result.run.threads} thread{'' if result.run.threads == 1 else 's'}"
    yield "Time", f"{duration(result.run.seconds)} on {result.run.device}, {threads}"
    yield "Peak memory", whole(result.run.peak_memory_mb, unit=" MB")
    for line in result.changed:
        yield "Changed", line


def _list_classes(evaluation: Evaluation, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    known = [(share, name) for share, name in zip(evaluation.per_class, names, strict=True) if share is not None]
    for label, (share, name) in (("Best class", max(known)), ("Worst class", min(known))):
        yield label, f"{name}, {share:.1f} %"
    pairs = evaluation.confused_pairs(most=3)
    if pairs:
        written = (f"{names[truth]} taken for {names[predicted]} ({count})" for truth, predicted, count in pairs)
        yield "Most confused", "; ".join(written)
