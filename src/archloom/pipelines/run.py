"""From a recipe to a model in one call: search, pick by validation, train from scratch, export, and report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from archloom.core.errors import ArchloomError, SettingError, one_line
from archloom.core.files import write_atomically
from archloom.core.settings import merge
from archloom.execution import workers
from archloom.execution.loop import Interrupted
from archloom.execution.run_folder import RunFolder
from archloom.export import export_model
from archloom.pipelines.report import render_pipeline
from archloom.pipelines.results import PipelineOutcome, chosen_searches, found_by, outcome_of
from archloom.pipelines.spec import PipelineSpec, RetrainTask, open_pipeline, sample_of
from archloom.retrainings import run as retraining
from archloom.retrainings.report import write_retrain_report
from archloom.searches.jobs import refuse_changed, run_task, share_listener
from archloom.searches.run import RUNS, write_search_report
from archloom.spaces import SPACES

Tell = Callable[[str], None]
Attend = Callable[[str, int], AbstractContextManager[workers.Listener]]
"""Told what begins and how many runs of it are left, gives a listener to them."""


def run(
    pipeline: str | Path | Mapping[str, Any],
    *,
    out: str | Path | None = None,
    jobs: int | None = None,
    settings: Mapping[str, Any] | None = None,
    tell: Tell = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
) -> PipelineOutcome:
    """Search with several seeds, pick by validation, train from scratch with several seeds, and report.

    `pipeline` is a TOML file, the name of a shipped one, the same as a mapping, or the folder (`out`) of one that was
    begun. What is finished there is not done again. `settings` overrule what the file says. Runs have processes of
    their own, which import the calling script: it must not call this outside of `if __name__ == "__main__":`.
    """
    resolved, folder = open_pipeline(
        pipeline, RUNS, out=None if out is None else Path(out), assigned=settings, tell=tell
    )
    return run_pipeline(resolved, folder, jobs=jobs, tell=tell, stop=stop)


def run_pipeline(
    pipeline: PipelineSpec,
    folder: Path,
    *,
    jobs: int | None = None,
    attend: Attend = lambda what, count: nullcontext(lambda event: None),
    tell: Tell = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
) -> PipelineOutcome:
    """Begin or go on with a resolved pipeline in its folder."""
    check_retrainings(pipeline)
    stages = _Stages(jobs, attend, stop)
    with RunFolder(folder).lock():
        refuse_changed(pipeline.searches(folder))
        pipeline.write(folder)
        try:
            _carry_out(pipeline, folder, stages)
        except Interrupted:
            _write(outcome_of(pipeline, folder, failures=stages.failures), folder)
            raise
        exported = _export(pipeline, outcome_of(pipeline, folder), stages.failures, tell)
        outcome = outcome_of(pipeline, folder, failures=stages.failures, exported=exported)
        _write(outcome, folder)
    return outcome


def _carry_out(pipeline: PipelineSpec, folder: Path, stages: _Stages) -> None:
    """All runs that are left, stage by stage: what is trained depends on what was found."""
    searches = pipeline.searches(folder)
    stages.work("searching", searches, run_task, pipeline.search_jobs)
    short = pipeline.short_trainings(folder) if len(found_by(searches)) == len(searches) else []
    stages.work("short trainings, to pick one", short, run_retraining, pipeline.retrain_jobs(len(short)))
    chosen = chosen_searches(pipeline, found_by(searches, short))
    tasks = pipeline.retrainings(folder, chosen) if chosen else []
    stages.work("training from scratch", tasks, run_retraining, pipeline.retrain_jobs(len(tasks)))


def check_retrainings(pipeline: PipelineSpec) -> None:
    """A SettingError for what could not be retrained, before hours of search."""
    experiment = pipeline.experiment
    if experiment.names["space"] not in SPACES:
        return  # a plug-in: only what it finds can tell
    data = {name: value for name, value in experiment.settings["data"].items() if name in ("directory", "path")}
    said = merge({"data": {"name": experiment.names["data"], **data}}, pipeline.retrain)
    try:
        retraining.request(sample_of(experiment), recipe=pipeline.recipe, said=said)
    except SettingError as error:
        raise SettingError([f"retrain: {problem}" for problem in error.problems]) from error


def run_retraining(task: RetrainTask, tell: Callable[[float], None], stop: Callable[[], bool]) -> None:
    """One training from scratch, in a process that may do many: begun, or gone on with where it was interrupted."""
    try:
        retraining.carry_out(_asked(task), out=task.path, listeners=[share_listener(tell)], stop=stop)
    except Interrupted as interrupted:
        raise workers.StoppedTask from interrupted


def _asked(task: RetrainTask) -> retraining.Request:
    """What is to be trained; to compare searches some training images must be held back, whatever the recipe says."""
    said = merge(task.settings, {"seed": task.seed})
    asked = retraining.request(task.what, recipe=task.recipe, budget=task.budget, said=said)
    if task.short and asked.retrain.common.split == "none":
        said = merge(said, {"data": {"split": "random"}})
        asked = retraining.request(task.what, recipe=task.recipe, budget=task.budget, said=said)
    return asked


class _Stages:
    """Runs of one kind after those of another."""

    def __init__(self, jobs: int | None, attend: Attend, stop: Callable[[], bool]) -> None:
        self._jobs, self._attend, self._stop = jobs, attend, stop
        self.failures: dict[str, str] = {}

    def work(self, what: str, tasks: Sequence[Any], perform: workers.Perform, jobs: int) -> None:
        """Do what is left of these; an interruption ends the pipeline."""
        left = [task for task in tasks if task.state != "finished"]
        if not left:
            return
        if self._stop():
            raise Interrupted
        with self._attend(what, len(left)) as listen:
            failed = workers.carry_out(left, perform, jobs=self._jobs or jobs, listen=listen, stop=self._stop)
        self.failures |= failed
        if self._stop() and any(task.state != "finished" for task in left):
            raise Interrupted


def _export(pipeline: PipelineSpec, outcome: PipelineOutcome, failures: dict[str, str], tell: Tell) -> list[Path]:
    """The best model in the forms asked for, once all are trained; what is there already is written again."""
    best = outcome.best
    if not pipeline.settings.export or best is None or not outcome.complete:
        return []
    try:
        exported = export_model(best.path, formats=pipeline.settings.export, tell=tell)
    except ArchloomError as error:  # hours of training are not lost by it
        failures["export"] = one_line(error)
        return []
    write_retrain_report(best.path)  # with links to the files
    return [path for form in exported for path in form.paths]


def _write(outcome: PipelineOutcome, folder: Path) -> None:
    """The page and the figures, and the pages of searches, which workers leave out."""
    for run in outcome.found:
        if not (run.path / "report.html").is_file():
            write_search_report(RunFolder(run.path))
    write_atomically(folder / "pipeline.json", outcome.to_json().encode())
    write_atomically(folder / "report.html", render_pipeline(outcome, folder).encode())
