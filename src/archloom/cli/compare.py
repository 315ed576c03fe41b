"""`archloom compare`: several strategies, several seeds, one table, and a verdict with error bars."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from archloom.cli.console import (
    PlainConsole,
    make_fact_table,
    make_table,
    open_message_console,
    open_result_console,
    print_line,
)
from archloom.cli.interactive import note_unless, stop_cleanly
from archloom.cli.options import (
    FAILED,
    Assignments,
    DataDir,
    DryRun,
    Jobs,
    JobsOut,
    On,
    Quiet,
    Seeds,
    data_settings,
    merge_options,
    recipe_or_folder,
    where_option,
)
from archloom.core.job_display import show_job_progress
from archloom.core.lazy_imports import lazy_imports
from archloom.core.recipes import RUNS, find_spec

with lazy_imports():  # help needs no torch
    import archloom.comparisons.report as comparison_report
    import archloom.comparisons.results as comparison_results
    import archloom.comparisons.run as comparison_run
    import archloom.comparisons.spec as comparison_spec
    import archloom.execution.places as places
    import archloom.searches.early_check as early_check
    import archloom.searches.jobs as search_jobs


WIDEST = 1000


def compare(
    comparison: Annotated[str, recipe_or_folder("FILE|FOLDER", "comparison")],
    *,
    out: JobsOut = None,
    seeds: Seeds = None,
    jobs: Jobs = None,
    on: On = "processes",
    only: Annotated[list[str] | None, typer.Option(help="Run only this entry; may be repeated.")] = None,
    assignments: Assignments = None,
    data_dir: DataDir = None,
    join: Annotated[
        bool,
        where_option(
            "--join", help="Share the searches with others that join this folder, on any machine that sees it."
        ),
    ] = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Run several strategies with several seeds, and say which is better than random search.

    Finished searches are kept, interrupted ones resume, and a failed one is retried once.
    """
    settings = merge_options({"data": data_settings(None, data_dir)}, assignments)
    early_check.check_file_early("compare", find_spec("compare", comparison, RUNS), {}, in_searches=settings)
    spec, folder = comparison_spec.ComparisonSpec.open(comparison, RUNS, out=out, seeds=seeds, overrides=settings)
    folder = places.shared_folder(folder, on)
    searches = spec.jobs(folder, only=only or ())
    if dry_run:
        _list_searches(searches, folder, open_result_console())
        return
    finished = sum(search.state == "finished" for search in searches)
    note_unless(quiet)(f"{len(searches):,} searches, {finished:,} of them finished; folder {folder}")
    executor = places.make_executor(on, workers=lambda: spec.jobs_at_once, most=jobs, place=folder)
    progress = show_job_progress(open_message_console(), total=len(searches) - finished, quiet=quiet)
    with stop_cleanly("compare --join" if join else "compare", folder) as stop, progress as listener:
        result = comparison_run.run_comparison(
            spec, folder, executor=executor, only=only or (), emit=listener, stop=stop, join=join
        )
    print_comparison(result, folder, open_result_console())
    if result.failures:
        raise typer.Exit(FAILED)


def _list_searches(searches: list[search_jobs.SearchJob], folder: Path, console: Console) -> None:
    states = [(search.name, search.state) for search in searches]
    console.print(make_table(("search", "state"), states))
    counts = ", ".join(f"{count:,} {state}" for state, count in Counter(state for _, state in states).items())
    print_line(f"{counts}; folder {folder}", console=console)


def print_comparison(result: comparison_results.ComparisonResult, folder: Path, console: Console) -> None:
    """Print the whole result; the table is not broken over lines, or figures could not be read or copied."""
    table = result.to_table()
    print_line(result.title, console=console)
    print_line("", console=console)
    shown = make_table(table.columns, table.rows)
    unbounded = PlainConsole(file=console.file, width=WIDEST)
    unbounded.width = unbounded.measure(shown).maximum
    unbounded.print(shown)
    for line in comparison_report.explain_figures(result):
        console.print(line, style="dim")
    if result.verdicts:
        print_line(f"\nVerdict against {result.against}:", console=console)
        console.print(make_fact_table(comparison_report.list_verdicts(result)))
    for name, failure in result.failures.items():
        print_line(f"failed: {name}: {failure}", console=console)
    if result.missing > len(result.failures):
        print_line(f"not finished: {result.missing - len(result.failures):,} searches", console=console)
    print_line(f"\n{', '.join(comparison_report.FILES)} in {folder}", console=console)
