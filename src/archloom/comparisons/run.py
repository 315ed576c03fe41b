"""Run every entry of a comparison with every seed, and compare the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from archloom.comparisons.evaluation import check_limit, evaluate_comparison
from archloom.comparisons.report import PAGE, render_files
from archloom.comparisons.results import ComparisonResult
from archloom.comparisons.spec import ComparisonSpec, longest_first
from archloom.core.events import JobEnded, JobEvent, JobListener
from archloom.core.files import write_atomically
from archloom.core.job_display import show_api_job_progress
from archloom.core.recipes import RUNS
from archloom.core.settings import Settings
from archloom.core.trust import trusting
from archloom.execution.executors import Executor, ProcessExecutor
from archloom.execution.loop import Interrupted
from archloom.execution.run_folder import RunFolder
from archloom.searches.jobs import refuse_changed


def compare(
    comparison: str | Path | Settings,
    *,
    out: str | Path | None = None,
    seeds: str | None = None,
    jobs: int | None = None,
    settings: Settings | None = None,
    only: Sequence[str] = (),
    listen: JobListener = lambda event: None,
    stop: Callable[[], bool] = lambda: False,
    executor: Executor | None = None,
    plugins: bool = False,
    progress: bool | None = None,
) -> ComparisonResult:
    """Run every entry of a comparison with every seed in worker processes, and compare the results.

    Finished searches are kept, interrupted ones resume, and a failed one is retried once.

    Args:
        comparison: A TOML file, the name of a shipped comparison, a mapping, or the folder of an earlier call.
        out: The folder of the comparison. Default: `runs/compare-NAME`.
        seeds: Seeds of every entry, as "0-4" or "0-4,9".
        jobs: How many searches run at the same time. Default: as many as the cores allow.
        settings: Sections that override every entry: {"search": {"trials": 100}}.
        only: The entries to run. Default: all.
        listen: Called with `JobStarted`, `JobProgressed` and `JobEnded`.
        stop: Asked several times a second; once true, searches save and stop.
        executor: Runs the searches instead of worker processes.
        plugins: Whether to import plug-ins that only a file or a folder names; see SECURITY.md.
        progress: Whether to show progress. Default: in a terminal or a notebook.

    Returns:
        The table and the verdicts, also written to the folder.

    Raises:
        SettingError: If a setting is wrong, or the folder holds searches with other settings.
        Interrupted: If `stop` was true before every search finished.

    Examples:
        >>> import archloom
        >>> result = archloom.compare("compare/first", jobs=2)  # doctest: +SKIP
        >>> result = archloom.compare("runs/compare-first")  # the folder of an earlier call: read, or resumed
        >>> len(result.entries)
        1
    """
    with trusting(comparison, settings, plugins=plugins):
        resolved, folder = ComparisonSpec.open(
            comparison, RUNS, out=None if out is None else Path(out), seeds=seeds, overrides=settings
        )
        executor = executor or ProcessExecutor(jobs or resolved.jobs_at_once)
        left = sum(job.state != "finished" for job in resolved.jobs(folder, only=only))
        with show_api_job_progress(progress, left) as show:

            def emit(event: JobEvent) -> None:
                show(event)
                listen(event)

            return run_comparison(resolved, folder, executor=executor, only=only, emit=emit, stop=stop)


def write_comparison_report(folder: Path, *, out: Path | None = None) -> Path:
    """Write the page and the tables of a comparison, finished or not, into its folder or `out`."""
    comparison, _ = ComparisonSpec.open(folder, RUNS)
    result = evaluate_comparison(comparison, comparison.jobs(folder), {}, folder)
    place = out or folder
    for name, text in render_files(result).items():
        write_atomically(place / name, text.encode())
    return place / PAGE


def run_comparison(
    comparison: ComparisonSpec,
    folder: Path,
    *,
    executor: Executor,
    only: Sequence[str] = (),
    emit: JobListener = lambda event: None,
    stop: Callable[[], bool] = lambda: False,
) -> ComparisonResult:
    """Begin or resume a resolved comparison in its folder."""
    check_limit(comparison)
    jobs, chosen = comparison.jobs(folder), comparison.jobs(folder, only=only)
    with RunFolder(folder).lock():
        refuse_changed(jobs)
        comparison.write(folder)

        def listen(event: JobEvent) -> None:
            if isinstance(event, JobEnded) and event.failure is not None and event.failure.details:
                write_atomically(folder / "failures" / f"{event.job}.txt", event.failure.details.encode())
            emit(event)

        failures = executor.run(longest_first(comparison, chosen), emit=listen, stop=stop)
        messages = {name: failure.message for name, failure in failures.items()}
        result = evaluate_comparison(comparison, jobs, messages, folder)
        for name, text in render_files(result).items():
            write_atomically(folder / name, text.encode())
    if stop() and any(job.state != "finished" for job in chosen):
        raise Interrupted
    return result
