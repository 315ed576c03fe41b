"""`archloom run`: the whole pipeline, from searches to a trained model, by one recipe."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from archloom.cli.completion import complete_pipeline
from archloom.cli.console import make_table, open_message_console, open_result_console, print_line
from archloom.cli.interactive import note_unless, stop_cleanly
from archloom.cli.options import (
    FAILED,
    Assignments,
    AtMost,
    DataDir,
    DryRun,
    Jobs,
    JobsOut,
    LatencySource,
    On,
    OwnImages,
    Quiet,
    Seeds,
    data_settings,
    how_option,
    limit_settings,
    merge_options,
    refuse_second_data,
    what_option,
)
from archloom.core.events import JobListener
from archloom.core.job_display import show_job_progress
from archloom.core.lazy_imports import lazy_imports
from archloom.core.recipes import RUNS
from archloom.pipelines.source import find_pipeline_source, names_data

with lazy_imports():  # help needs no torch
    import archloom.pipelines.report as pipeline_report
    import archloom.pipelines.results as pipeline_results
    import archloom.pipelines.run as pipeline_run
    import archloom.pipelines.spec as pipeline_spec
    import archloom.retrainings.jobs as retrain_jobs
    import archloom.searches.early_check as early_check
    import archloom.searches.jobs as search_jobs


def run(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="DATA|RECIPE|FOLDER",
            help="Your images (a folder with one folder per class, an .npz file), a TOML file, a shipped pipeline "
            "(archloom list recipes), or the folder of an earlier one.",
            autocompletion=complete_pipeline,
        ),
    ],
    *,
    data: Annotated[str | None, what_option(help="Data set (archloom list data) or the path of your images.")] = None,
    path: OwnImages = None,
    data_dir: DataDir = None,
    budget: Annotated[
        str | None, how_option(help="Time for everything, as 15m: fits the epochs of searches and retrainings.")
    ] = None,
    seeds: Seeds = None,
    retrainings: Annotated[int | None, how_option(help="Trainings of each architecture.")] = None,
    export: Annotated[
        list[str] | None, how_option(help="Also write the best model as onnx, torch or standalone.")
    ] = None,
    at_most: AtMost = None,
    latency_source: LatencySource = None,
    assignments: Assignments = None,
    out: JobsOut = None,
    jobs: Jobs = None,
    on: On = "processes",
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Search with several seeds, pick by validation, train from scratch, report.

    Finished runs are kept and interrupted ones resume: repeat the command, or name the folder.
    """
    refuse_second_data(recipe if names_data(recipe) else None, {"--data": data, "--path": path})
    sections = {"data": data_settings(data, data_dir, path), "limit": limit_settings(at_most, latency_source)}
    options = {"budget": budget, "seeds": seeds, "retrainings": retrainings, "export": export, "search": sections}
    note, overrides = note_unless(quiet), merge_options(options, assignments)
    early_check.check_file_early("run", *find_pipeline_source(recipe, RUNS, out=out, overrides=overrides))
    pipeline, folder = pipeline_spec.PipelineSpec.open(recipe, RUNS, out=out, overrides=overrides, note=note)
    if dry_run:
        pipeline_run.check_pipeline(pipeline, folder)
        _list_runs(pipeline, folder, open_result_console())
        return
    note(f"{pipeline.settings.title}: {pipeline.search.title}; folder {folder}")

    @contextmanager
    def attend(stage: str, count: int) -> Iterator[JobListener]:
        note(f"{stage}: {count:,} {'run' if count == 1 else 'runs'}")
        with show_job_progress(open_message_console(), total=count, quiet=quiet) as listener:
            yield listener

    with stop_cleanly("run", folder) as stop:
        result = pipeline_run.run_pipeline(pipeline, folder, workers=jobs, on=on, attend=attend, note=note, stop=stop)
    print_pipeline(result, folder, open_result_console())
    if result.failures:
        raise typer.Exit(FAILED)


def _list_runs(pipeline: pipeline_spec.PipelineSpec, folder: Path, console: Console) -> None:
    """Print the runs, as far as they are known before the searches."""
    jobs: list[search_jobs.SearchJob | retrain_jobs.RetrainJob] = [
        *pipeline.searches(folder),
        *pipeline.short_trainings(folder),
    ]
    if pipeline.settings.protocol == "repeats":
        jobs += pipeline.retrainings(folder, pipeline.seeds)
    console.print(make_table(("run", "state"), [(str(job.folder.relative_to(folder)), job.state) for job in jobs]))
    if pipeline.settings.protocol == "best_of_searches":
        print_line(f"then {_describe_retrainings(pipeline)}", console=console)
    print_line(f"folder {folder}", console=console)


def _describe_retrainings(pipeline: pipeline_spec.PipelineSpec) -> str:
    """Return `1 retraining of the best by the recipe auto, in 300s; export: onnx`."""
    count = pipeline.most_retrainings
    time, formats = pipeline.retrain_time(count), pipeline.settings.export
    name = Path(pipeline.recipe).stem if pipeline.recipe.endswith(".toml") else pipeline.recipe
    trained = f"{count} {'retraining' if count == 1 else 'retrainings'} of the best by the recipe {name}"
    return trained + (f", {time} each" if time else "") + (f"; export: {', '.join(formats)}" if formats else "")


def print_pipeline(result: pipeline_results.PipelineResult, folder: Path, console: Console) -> None:
    """Print the whole result, and what to do with it."""
    print_line(result.title, console=console)
    for table in (result.tabulate_searches(), result.tabulate_models()):
        if table.rows:
            print_line("", console=console)
            shown = [row[: len(row) - (table.columns[-1] == "architecture")] for row in table.rows]
            console.print(make_table([name for name in table.columns if name != "architecture"], shown))
    print_line("", console=console)
    console.print(pipeline_report.explain_picking(result))
    for line in result.sentences:
        console.print(line)
    for name, failure in result.failures.items():
        print_line(f"failed: {name}: {failure}", console=console)
    print_line("", console=console)
    for path in result.exported:
        print_line(f"exported: {path}", console=console)
    print_line(f"report: {folder / 'report.html'}", console=console)
    if result.best is not None:
        print_line(f"try it: archloom predict {shlex.quote(str(folder))} IMAGES...", console=console)
