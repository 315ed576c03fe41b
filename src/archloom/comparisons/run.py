"""Run every entry of a comparison with every seed, and compare the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from archloom.comparisons.evaluation import check_limit, evaluate_comparison
from archloom.comparisons.report import PAGE, render_files
from archloom.comparisons.results import ComparisonResult
from archloom.comparisons.spec import ComparisonSpec, longest_first
from archloom.core.events import Failure, JobEnded, JobEvent, JobListener
from archloom.core.files import write_atomically
from archloom.core.job_display import show_api_job_progress
from archloom.core.leases import waiting_for_leases
from archloom.core.recipes import RUNS
from archloom.core.settings import Settings
from archloom.core.trust import trusting
from archloom.execution.executors import Executor
from archloom.execution.loop import Interrupted
from archloom.execution.places import PROCESSES, make_executor, shared_folder
from archloom.execution.run_folder import RunFolder
from archloom.execution.sharing import SharingExecutor
from archloom.searches.jobs import SearchJob, refuse_changed

JOIN_PATIENCE = 20.0  # seconds for which others that join may write the comparison's own files


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
    on: str = PROCESSES,
    executor: Executor | None = None,
    join: bool = False,
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
        on: Where searches run: "processes", "serial", "ray", "ray://HOST:PORT" or "slurm".
        executor: Runs the searches instead of worker processes.
        join: Share the searches with other processes that join the same folder, on any machine that sees it.
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
        folder = shared_folder(folder, on)
        executor = executor or make_executor(on, workers=lambda: resolved.jobs_at_once, most=jobs, place=folder)
        left = sum(job.state != "finished" for job in resolved.jobs(folder, only=only))
        with show_api_job_progress(progress, left) as show:

            def emit(event: JobEvent) -> None:
                show(event)
                listen(event)

            return run_comparison(resolved, folder, executor=executor, only=only, emit=emit, stop=stop, join=join)


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
    join: bool = False,
) -> ComparisonResult:
    """Begin or resume a resolved comparison in its folder; alone, or together with others that join it."""
    check_limit(comparison)
    jobs, chosen = comparison.jobs(folder), comparison.jobs(folder, only=only)
    run = _run_together if join else _run_alone
    result = run(_Comparison(comparison, folder, jobs, chosen, emit), executor, stop)
    if stop() and any(job.state != "finished" for job in chosen):
        raise Interrupted
    return result


@dataclass(frozen=True)
class _Comparison:
    """A comparison in its folder, and the jobs that are to be run now."""

    spec: ComparisonSpec
    folder: Path
    jobs: Sequence[SearchJob]
    chosen: Sequence[SearchJob]
    emit: JobListener

    def write_spec(self) -> None:
        refuse_changed(self.jobs)
        self.spec.write(self.folder)

    def run(self, executor: Executor, stop: Callable[[], bool]) -> Mapping[str, Failure]:
        return executor.run(longest_first(self.spec, self.chosen), emit=self._listen, stop=stop)

    def _listen(self, event: JobEvent) -> None:
        if isinstance(event, JobEnded) and event.failure is not None and event.failure.details:
            write_atomically(self.folder / "failures" / f"{event.job}.txt", event.failure.details.encode())
        self.emit(event)

    def write_result(self, failures: Mapping[str, Failure]) -> ComparisonResult:
        messages = {name: failure.message for name, failure in failures.items()}
        result = evaluate_comparison(self.spec, self.jobs, messages, self.folder)
        for name, text in render_files(result).items():
            write_atomically(self.folder / name, text.encode())
        return result


def _run_alone(comparison: _Comparison, executor: Executor, stop: Callable[[], bool]) -> ComparisonResult:
    with RunFolder(comparison.folder).lock():
        comparison.write_spec()
        return comparison.write_result(comparison.run(executor, stop))


def _run_together(comparison: _Comparison, executor: Executor, stop: Callable[[], bool]) -> ComparisonResult:
    """Hold the folder only while a file of the whole is written; each search has a lease of its own."""
    with waiting_for_leases(JOIN_PATIENCE), RunFolder(comparison.folder).lock():
        comparison.write_spec()
    failures = comparison.run(SharingExecutor(executor), stop)
    with waiting_for_leases(), RunFolder(comparison.folder).lock():
        return comparison.write_result(failures)
