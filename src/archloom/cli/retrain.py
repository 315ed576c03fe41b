"""`archloom retrain`: train an architecture from scratch, and say how good the model is."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from archloom.cli.attend import stopping_cleanly
from archloom.cli.console import facts_of, messages, results, say
from archloom.cli.progress import shown_progress
from archloom.cli.search import said
from archloom.core.errors import SettingError

if TYPE_CHECKING:  # torch is imported when training begins, not to print help
    from archloom.core.events import Listener
    from archloom.retrainings.run import RetrainResult

CHOICE, LENGTH, MACHINE = "What to train", "How to train", "Where and how to run"
FOLDER = "folder"  # the data set of anybody's own images

Begin = Callable[["Listener", Callable[[], bool]], "RetrainResult"]


def retrain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="ARCHITECTURE",
            help="The run that found it, a JSON file, a text form (NB201 string, DARTS genotype), or a published name.",
        ),
    ],
    *,
    recipe: Annotated[
        str,
        typer.Option(help="A TOML file or a shipped recipe (archloom list recipes).", rich_help_panel=LENGTH),
    ] = "auto",
    budget: Annotated[
        str | None, typer.Option(help="Time for the recipe auto: 30m, 2h. Default: 30m.", rich_help_panel=LENGTH)
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Other than the recipe says.", rich_help_panel=LENGTH)] = None,
    seed: Annotated[int | None, typer.Option(help="Everything random follows from it.", rich_help_panel=LENGTH)] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.NAME=VALUE",
            help="Any setting, as often as needed; wins over options and recipe.",
            rich_help_panel=LENGTH,
        ),
    ] = None,
    space: Annotated[
        str | None, typer.Option(help="Space of a text form, if it does not show.", rich_help_panel=CHOICE)
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Data set (archloom list data). Default: that of the run.", rich_help_panel=CHOICE),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="The folder of data sets. Default: $ARCHLOOM_DATA.", rich_help_panel=CHOICE)
    ] = None,
    path: Annotated[
        Path | None, typer.Option(help="Your own images: a folder with one per class.", rich_help_panel=CHOICE)
    ] = None,
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
    """Train an architecture from scratch, and say how good the model is.

    Ctrl-C saves; archloom resume, or the same command with the same --out, goes on from there.
    """
    from archloom.core.settings import merge, parse_assignments
    from archloom.execution.run import RunOptions
    from archloom.execution.run_folder import RunFolder
    from archloom.retrainings.run import resolve_request, run_retraining
    from archloom.searches.run import RUNS

    options = {
        "seed": seed,
        "space": {"name": space},
        "data": {
            "name": data or (FOLDER if path is not None else None),
            "directory": None if data_dir is None else str(data_dir.expanduser().absolute()),
            "path": None if path is None else str(path.expanduser().absolute()),
        },
        "training": {"epochs": epochs},
        "machine": {"device": device, "torch_threads": threads},
    }
    assigned, problems = parse_assignments(assignments or [])
    if data_dir is not None and not data_dir.expanduser().exists():
        problems.append(f"no data folder {data_dir}; check --data-dir")
    if problems:
        raise SettingError(problems)
    request = resolve_request(what, recipe=recipe, budget=budget, overrides=merge(said(options), assigned))
    directory = out or RunFolder.next_free(RUNS, request.spec.stem)

    def tell(line: str) -> None:
        if not quiet:
            say(line, console=messages())

    tell(f"{request.spec.title}; run folder {directory}")
    attend_retraining(
        lambda listener, stop: run_retraining(
            request, out=directory, options=RunOptions([listener], stop, warn=tell), note=tell
        ),
        directory=directory,
        quiet=quiet,
    )


def attend_retraining(begin: Begin, *, directory: Path, quiet: bool) -> None:
    """Train to the end or to an interruption, and tell the user either way."""
    with stopping_cleanly("resume", directory) as stop, shown_progress(messages(), quiet=quiet) as listener:
        result = begin(listener, stop)
    print_model(result, results())


# --- the end


def print_model(result: RetrainResult, console: Console) -> None:
    """How good the model is, what it confuses, and what to do with it; readable in 80 columns."""
    details = result.details
    heading = (
        f"{details['space']['name']} trained on {details['data']}, recipe {details['recipe']}, seed {details['seed']}"
    )
    console.print(Rule(Text(heading, style="bold"), align="left", characters="─"))
    say(str(details["text"]), console=console)  # whole and on a line of its own, to be copied
    console.print()
    console.print(facts_of(_facts(details)))
    console.print()
    run = shlex.quote(str(result.folder))
    say(f"model: {result.model}", console=console)
    say(f"report: {result.folder / 'report.html'}", console=console)
    say(f"use it elsewhere: archloom export {run}", console=console)
    say(f"try it: archloom predict {run} IMAGES...", console=console)


def _facts(details: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    from archloom.objectives.cost import Cost
    from archloom.reports.tables import cost_facts, duration, whole

    for part, name in (("test", "Test"), ("valid", "Validation")):
        if judged := details[part]:
            yield f"{name} accuracy", f"{judged['top1']:.2f} % of {judged['images']:,} images{_top(judged, details)}"
    judged = details["test"] or details["valid"]
    if judged:
        yield from _classes(judged, details["classes"])
    yield "Model of epoch", f"{details['best_epoch'] + 1} of {details['run']['records']}"
    yield from cost_facts(Cost(**details["cost"]))
    run = details["run"]
    yield "Time", f"{duration(run['seconds'])} on {run['device']}, {_threads(run['threads'])}"
    yield "Peak memory", whole(run["peak_memory_mb"], unit=" MB")
    for line in details["changed"]:
        yield "Changed", line


def _threads(count: int) -> str:
    return f"{count} thread{'' if count == 1 else 's'}"


def _top(judged: Mapping[str, Any], details: Mapping[str, Any]) -> str:
    """With five classes or fewer, the five best are all of them."""
    from archloom.retrainings.evaluation import TOP

    return f" (top {TOP}: {judged['top5']:.2f} %)" if len(details["classes"]) > TOP else ""


def _classes(judged: Mapping[str, Any], names: list[str]) -> Iterator[tuple[str, str]]:
    from archloom.retrainings.evaluation import confused_pairs

    known = [(share, name) for share, name in zip(judged["per_class"], names, strict=True) if share is not None]
    for label, (share, name) in (("Best class", max(known)), ("Worst class", min(known))):
        yield label, f"{name}, {share:.1f} %"
    pairs = confused_pairs(judged["confusion"], tuple(names))
    if pairs:
        yield "Most confused", "; ".join(f"{truth} taken for {guess} ({count})" for truth, guess, count in pairs)
