"""`archloom run`: the whole pipeline, from searches to a trained model, by one recipe."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from archloom.cli.attend import stopping_cleanly
from archloom.cli.compare import shown_progress
from archloom.cli.console import messages, results, say, table_of
from archloom.cli.search import said
from archloom.core.errors import SettingError
from archloom.core.events import JobListener

if TYPE_CHECKING:  # torch is imported when a pipeline begins, not to print help
    from archloom.pipelines.results import PipelineOutcome
    from archloom.pipelines.spec import PipelineSpec

FAILED = 1
FOLDER = "folder"  # the data set of anybody's own images


def run(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|FOLDER",
            help="A TOML file, a shipped one (archloom list recipes), or the folder of one begun.",
        ),
    ],
    *,
    path: Annotated[Path | None, typer.Option(help="Your own images: a folder with one per class.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="The folder of data sets and benchmark tables. Default: $ARCHLOOM_DATA.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Time for all of it, as 15m: fits epochs of search and the recipe auto.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Of the searches: 0-3, or 0-3,9.")] = None,
    retrainings: Annotated[int | None, typer.Option(help="Of each architecture that is trained.")] = None,
    export: Annotated[
        list[str] | None, typer.Option(help="Also write the best model as onnx, torch or standalone.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Any setting: pick_epochs=5, search.SECTION.NAME=VALUE, retrain. ..."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Its folder. Default: runs/run-NAME.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs side by side. Default: as cores allow.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs and how far each is.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the outcome.")] = False,
) -> None:
    """Search with several seeds, pick by validation, train from scratch, report.

    What is finished is not done again, what was interrupted goes on: give the same command, or the folder.
    """
    from archloom.core.settings import merge, parse_assignments
    from archloom.pipelines.run import run_pipeline
    from archloom.pipelines.spec import open_pipeline
    from archloom.searches.run import RUNS

    assigned, problems = parse_assignments(assignments or [])
    if problems:
        raise SettingError(problems)
    data = {
        "name": None if path is None else FOLDER,
        "path": None if path is None else str(path.expanduser().absolute()),
        "directory": None if data_dir is None else str(data_dir.expanduser().absolute()),
    }
    options = {"budget": budget, "seeds": seeds, "retrainings": retrainings, "export": export, "search": {"data": data}}

    def tell(line: str) -> None:
        if not quiet:
            say(line, console=messages())

    pipeline, folder = open_pipeline(recipe, RUNS, out=out, assigned=merge(said(options), assigned), tell=tell)
    if dry_run:
        _list_runs(pipeline, folder, results())
        return
    tell(f"{pipeline.settings.title}: {pipeline.experiment.title} and on; folder {folder}")

    @contextmanager
    def attend(what: str, count: int) -> Iterator[JobListener]:
        tell(f"{what}: {count:,} {'run' if count == 1 else 'runs'}")
        with shown_progress(messages(), total=count, quiet=quiet) as listen:
            yield listen

    with stopping_cleanly("run", folder) as stop:
        outcome = run_pipeline(pipeline, folder, workers=jobs, attend=attend, tell=tell, stop=stop)
    print_pipeline(outcome, folder, results())
    if outcome.failures:
        raise typer.Exit(FAILED)


def _list_runs(pipeline: PipelineSpec, folder: Path, console: Console) -> None:
    """What there is to do, as far as it is known before anything was found."""
    jobs: list[Any] = [*pipeline.searches(folder), *pipeline.short_trainings(folder)]
    if pipeline.settings.protocol == "repeats":
        jobs += pipeline.retrainings(folder, pipeline.seeds)
    console.print(table_of(("run", "state"), [(str(job.folder.relative_to(folder)), job.state) for job in jobs]))
    if pipeline.settings.protocol == "best_of_searches":
        say(f"then {pipeline.settings.retrainings} retrainings of the best", console=console)
    say(f"folder {folder}", console=console)


def print_pipeline(outcome: PipelineOutcome, folder: Path, console: Console) -> None:
    """The whole outcome, and what to do with it."""
    from archloom.pipelines.report import picking, search_table, sentences, trained_table

    say(outcome.title, console=console)
    for table in (search_table(outcome), trained_table(outcome)):
        if table.rows:
            say("", console=console)
            shown = [row[: len(row) - (table.columns[-1] == "architecture")] for row in table.rows]
            console.print(table_of([name for name in table.columns if name != "architecture"], shown))
    say("", console=console)
    console.print(picking(outcome))
    for line in sentences(outcome):
        console.print(line)
    for name, failure in outcome.failures.items():
        say(f"failed: {name}: {failure}", console=console)
    say("", console=console)
    for path in outcome.exported:
        say(f"exported: {path}", console=console)
    say(f"report: {folder / 'report.html'}", console=console)
    if outcome.best is not None:
        model = next((path for path in outcome.exported if path.suffix == ".onnx"), outcome.best.path)
        say(f"try it: archloom predict {shlex.quote(str(model))} IMAGES...", console=console)
