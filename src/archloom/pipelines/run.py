"""Run a pipeline: search, pick by validation, train from scratch, export, report."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from archloom.core.errors import ArchloomError, SettingError, one_line
from archloom.core.events import JobListener
from archloom.core.files import write_atomically
from archloom.core.job_display import show_api_job_progress
from archloom.core.recipes import RUNS
from archloom.core.settings import Settings
from archloom.core.trust import trusting
from archloom.execution.executors import Executor, Job
from archloom.execution.loop import Interrupted
from archloom.execution.places import PROCESSES, make_executor, shared_folder
from archloom.execution.run_folder import RunFolder
from archloom.export import export_model
from archloom.pipelines.evaluation import choose_searches, evaluate_pipeline, summarize_searches
from archloom.pipelines.report import render_pipeline
from archloom.pipelines.results import PipelineResult
from archloom.pipelines.spec import PipelineSpec
from archloom.retrainings.folder import RetrainFolder
from archloom.retrainings.jobs import RetrainJob
from archloom.retrainings.report import write_retrain_report
from archloom.retrainings.run import resume_retraining
from archloom.searches.jobs import SearchJob, refuse_changed
from archloom.searches.run import write_search_report
from archloom.spaces import SPACES

Note = Callable[[str], None]
Attend = Callable[[str, int], AbstractContextManager[JobListener]]
"""Called with the name of a stage and the number of its jobs; returns a context with a listener to them."""


def run(
    pipeline: str | Path | Settings,
    *,
    out: str | Path | None = None,
    jobs: int | None = None,
    settings: Settings | None = None,
    note: Note = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
    on: str = PROCESSES,
    executor: Executor | None = None,
    plugins: bool = False,
    progress: bool | None = None,
) -> PipelineResult:
    """Search with several seeds, pick by validation, train from scratch with several seeds, and report.

    Finished runs are kept, interrupted ones resume, and a failed one is retried once.

    Args:
        pipeline: The path of your images or a data set, a TOML file, the name of a shipped pipeline, a mapping, or the
            folder of an earlier call.
        out: The folder of the pipeline. Default: `runs/run-NAME`.
        jobs: How many runs run at the same time. Default: as many as the cores allow.
        settings: Settings that override the pipeline: {"pick_epochs": 5, "search": {"search": {"epochs": 10}}}.
        note: Called with lines on what was chosen, and with warnings.
        stop: Asked several times a second; once true, runs save and stop.
        on: Where runs run: "processes", "serial", "ray", "ray://HOST:PORT" or "slurm".
        executor: Runs searches and retrainings instead of worker processes.
        plugins: Whether to import plug-ins that only a file or a folder names; see SECURITY.md.
        progress: Whether to show progress. Default: in a terminal or a notebook.

    Returns:
        What each search found and how good each trained model is, also written to the folder.

    Raises:
        SettingError: If a setting is wrong, or the folder holds searches with other settings.
        Interrupted: If `stop` was true before every run finished.

    Examples:
        >>> import archloom
        >>> result = archloom.run("run/first", jobs=2)  # doctest: +SKIP
        >>> result = archloom.run("runs/run-first")  # the folder of an earlier call: read, or resumed
        >>> len(result.searches), len(result.models)
        (1, 1)
    """
    with trusting(pipeline, settings, plugins=plugins):
        resolved, folder = PipelineSpec.open(
            pipeline, RUNS, out=None if out is None else Path(out), overrides=settings, note=note
        )

        def attend(what: str, count: int) -> AbstractContextManager[JobListener]:
            return show_api_job_progress(progress, count)

        return run_pipeline(
            resolved, folder, workers=jobs, on=on, executor=executor, attend=attend, note=note, stop=stop
        )


def run_pipeline(
    pipeline: PipelineSpec,
    folder: Path,
    *,
    workers: int | None = None,
    on: str = PROCESSES,
    executor: Executor | None = None,
    attend: Attend = lambda what, count: nullcontext(lambda event: None),
    note: Note = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
) -> PipelineResult:
    """Begin or resume a resolved pipeline in its folder."""
    check_pipeline(pipeline, folder)
    folder = shared_folder(folder, on)
    make = partial(make_executor, on, most=workers, place=folder)
    stages = _Stages(lambda fitting: executor or make(workers=fitting), attend, stop)
    with RunFolder(folder).lock():
        pipeline.write(folder)
        try:
            _run_stages(pipeline, folder, stages)
        except Interrupted:
            _write(evaluate_pipeline(pipeline, folder, failures=stages.failures), folder)
            raise
        exported = _export(pipeline, evaluate_pipeline(pipeline, folder), stages.failures, note)
        result = evaluate_pipeline(pipeline, folder, failures=stages.failures, exported=exported)
        _write(result, folder)
    return result


def write_pipeline_report(folder: Path, *, out: Path | None = None) -> Path:
    """Write the page of a pipeline, finished or not, into its folder or `out`."""
    pipeline, _ = PipelineSpec.open(folder, RUNS)
    is_written = (folder / PipelineResult.file_name).is_file()
    exported = PipelineResult.read(folder).exported if is_written else ()
    page = (out or folder) / "report.html"
    result = evaluate_pipeline(pipeline, folder, exported=exported)
    write_atomically(page, render_pipeline(result, page.parent).encode())
    return page


def _run_stages(pipeline: PipelineSpec, folder: Path, stages: _Stages) -> None:
    """Run all jobs that are left, stage by stage: what is trained depends on what was found."""
    searches = pipeline.searches(folder)
    stages.run("searching", searches, lambda: pipeline.search_jobs)
    short = pipeline.short_trainings(folder) if len(summarize_searches(searches)) == len(searches) else []
    stages.run("short trainings, to pick one", short, lambda: pipeline.retrain_jobs(len(short)))
    chosen = choose_searches(pipeline, summarize_searches(searches, short))
    retrainings = pipeline.retrainings(folder, chosen) if chosen else []
    stages.run("training from scratch", retrainings, lambda: pipeline.retrain_jobs(len(retrainings)))


def check_pipeline(pipeline: PipelineSpec, folder: Path) -> None:
    """Raise an error for all that keeps a pipeline from beginning in its folder, or from reaching its end."""
    check_retrainings(pipeline)
    pipeline.refuse_folder(folder)
    refuse_changed(pipeline.searches(folder))
    if pipeline.search.facts is None:
        pipeline.search.load_data()


def check_retrainings(pipeline: PipelineSpec) -> None:
    """Raise a SettingError for retrainings that could not begin, before hours of search."""
    search = pipeline.search
    if search.space.name not in SPACES:
        return  # a plug-in: only a result of its search can be checked
    try:
        pipeline.request(search.build_space().sample(random.Random(0)))
    except SettingError as error:
        raise SettingError([f"retrain: {problem}" for problem in error.problems]) from error


class _Stages:
    """Runs the jobs of one stage after those of another."""

    def __init__(
        self, make_executor: Callable[[Callable[[], int]], Executor], attend: Attend, stop: Callable[[], bool]
    ) -> None:
        self._make_executor, self._attend, self._stop = make_executor, attend, stop
        self.failures: dict[str, str] = {}

    def run(self, what: str, jobs: Sequence[SearchJob] | Sequence[RetrainJob], workers: Callable[[], int]) -> None:
        """Run the jobs that are left; `workers` returns how many this machine can run; may raise `Interrupted`."""
        left: list[Job] = [job for job in jobs if job.state != "finished"]
        if not left:
            return
        if self._stop():
            raise Interrupted
        executor = self._make_executor(workers)
        with self._attend(what, len(left)) as listener:
            failed = executor.run(left, emit=listener, stop=self._stop)
        self.failures |= {name: failure.message for name, failure in failed.items()}
        if self._stop() and any(job.state != "finished" for job in jobs):
            raise Interrupted


def _export(pipeline: PipelineSpec, result: PipelineResult, failures: dict[str, str], note: Note) -> list[Path]:
    """Export the best model once all are trained; return the files."""
    best = result.best
    if not pipeline.settings.export or best is None or not result.complete:
        return []
    try:
        exported = export_model(best.path, formats=pipeline.settings.export, tell=note)
    except ArchloomError as error:  # it must not lose hours of training
        failures["export"] = one_line(error)
        return []
    with RetrainFolder(best.path).lock():  # which removes what a kill left over
        write_retrain_report(best.path)  # with links to the files
    return [path for form in exported for path in form.paths]


def _write(result: PipelineResult, folder: Path) -> None:
    """Write the page, the figures, the pages of searches, which workers leave out, and what a kill left out."""
    for run in result.searches:
        searched = RunFolder(run.path)
        if not searched.report_path.is_file():
            with searched.lock():  # which removes what a kill left over
                write_search_report(searched)
    for run_folder in (RetrainFolder(model.path) for model in result.models):
        if run_folder.list_missing():
            resume_retraining(run_folder)  # it is complete: this writes only what is missing
    write_atomically(folder / result.file_name, (json.dumps(result.to_json(), indent=1) + "\n").encode())
    write_atomically(folder / "report.html", render_pipeline(result, folder).encode())
