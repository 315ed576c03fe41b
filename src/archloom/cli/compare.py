"""`archloom compare`: several strategies, several seeds, one table, and a verdict with error bars."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from archloom.cli.job_progress import show_job_progress
from archloom.cli.options import (
    FAILED,
    Assignments,
    DataDir,
    DryRun,
    Jobs,
    JobsOut,
    Quiet,
    Seeds,
    data_settings,
    merge_options,
)

if TYPE_CHECKING:  # torch is imported when a comparison begins, not to print help
    from archloom.comparisons.results import ComparisonResult
    from archloom.searches.jobs import SearchJob

WIDEST = 1000


def compare(
    comparison: Annotated[
        str,
        typer.Argument(
            metavar="FILE|FOLDER",
            help="A TOML file, a shipped comparison (archloom list recipes), or the folder of an earlier one.",
        ),
    ],
    *,
    out: JobsOut = None,
    seeds: Seeds = None,
    jobs: Jobs = None,
    only: Annotated[list[str] | None, typer.Option(help="Run only this entry; may be repeated.")] = None,
    assignments: Assignments = None,
    data_dir: DataDir = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Run several strategies with several seeds, and say which is better than random search.

    Finished searches are kept, interrupted ones resume, and a failed one is retried once.
    """
    from archloom.comparisons.run import run_comparison
    from archloom.comparisons.spec import ComparisonSpec
    from archloom.execution.executors import ProcessExecutor
    from archloom.searches.run import RUNS

    settings = merge_options({"data": data_settings(None, data_dir)}, assignments)
    spec, folder = ComparisonSpec.open(comparison, RUNS, out=out, seeds=seeds, overrides=settings)
    searches = spec.jobs(folder, only=only or ())
    if dry_run:
        _list_searches(searches, folder, open_result_console())
        return
    finished = sum(search.state == "finished" for search in searches)
    note_unless(quiet)(f"{len(searches):,} searches, {finished:,} of them finished; folder {folder}")
    executor = ProcessExecutor(jobs or spec.jobs_at_once)
    progress = show_job_progress(open_message_console(), total=len(searches) - finished, quiet=quiet)
    with stop_cleanly("compare", folder) as stop, progress as listener:
        result = run_comparison(spec, folder, executor=executor, only=only or (), emit=listener, stop=stop)
    print_comparison(result, folder, open_result_console())
    if result.failures:
        raise typer.Exit(FAILED)


def _list_searches(searches: list[SearchJob], folder: Path, console: Console) -> None:
    states = [(search.name, search.state) for search in searches]
    console.print(make_table(("search", "state"), states))
    counts = ", ".join(f"{count:,} {state}" for state, count in Counter(state for _, state in states).items())
    print_line(f"{counts}; folder {folder}", console=console)


def print_comparison(result: ComparisonResult, folder: Path, console: Console) -> None:
    """Print the whole result; the table is not broken over lines, or figures could not be read or copied."""
    from archloom.comparisons.report import FILES, explain_figures, list_verdicts

    table = result.to_table()
    print_line(result.title, console=console)
    print_line("", console=console)
    shown = make_table(table.columns, table.rows)
    unbounded = PlainConsole(file=console.file, width=WIDEST)
    unbounded.width = unbounded.measure(shown).maximum
    unbounded.print(shown)
    for line in explain_figures(result):
        console.print(line, style="dim")
    if result.verdicts:
        print_line(f"\nVerdict against {result.against}:", console=console)
        console.print(make_fact_table(list_verdicts(result)))
    for name, failure in result.failures.items():
        print_line(f"failed: {name}: {failure}", console=console)
    if result.missing > len(result.failures):
        print_line(f"not finished: {result.missing - len(result.failures):,} searches", console=console)
    print_line(f"\n{', '.join(FILES)} in {folder}", console=console)
