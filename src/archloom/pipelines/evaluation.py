"""Evaluate a pipeline from the folders of its runs: which search is best by validation, and how good models are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from archloom.core.errors import ArchloomError
from archloom.core.metrics import Metric
from archloom.families import family_of
from archloom.pipelines.results import ModelSummary, PipelineResult, SearchSummary
from archloom.pipelines.spec import PipelineSpec
from archloom.retrainings.jobs import RetrainJob
from archloom.retrainings.result import RetrainResult, read_retrain_result
from archloom.searches.jobs import SearchJob
from archloom.searches.records import EpochRecord, TrialRecord
from archloom.searches.result import SearchResult, read_result

FIGURES = {
    "shared": "validation {metric} under the shared weights of its search",
    "score": "best validation score of its trials",
    "short": "validation {metric} after a short training",
}


def evaluate_pipeline(
    pipeline: PipelineSpec,
    folder: Path,
    *,
    failures: Mapping[str, str] | None = None,
    exported: Sequence[Path] = (),
) -> PipelineResult:
    """Return what the folder of a pipeline holds so far."""
    searches = summarize_searches(pipeline.searches(folder), pipeline.short_trainings(folder))
    chosen = choose_searches(pipeline, searches)
    settings = pipeline.settings
    picks = settings.protocol == "best_of_searches"
    return PipelineResult(
        title=settings.title,
        protocol=settings.protocol,
        search_count=len(pipeline.seeds),
        model_count=settings.retrainings * (1 if picks else len(pipeline.seeds)),
        searches=searches,
        picked=chosen[0] if picks and chosen else None,
        models=_summarize_models(pipeline.retrainings(folder, chosen)) if chosen else (),
        failures=failures or {},
        exported=tuple(exported),
        folder=folder,
        metric=metric_of(pipeline).name,
    )


def metric_of(pipeline: PipelineSpec) -> Metric:
    """Return the metric of the task that its searches are for."""
    return family_of(pipeline.search.build_space()).task.metric


def summarize_searches(jobs: Sequence[SearchJob], short: Sequence[RetrainJob] = ()) -> tuple[SearchSummary, ...]:
    """Return what the finished searches found; their figures come from short trainings if there are any."""
    trained = {job.search: _read_model(job) for job in short}
    summaries = []
    for job in jobs:
        found = _read_search(job)
        if found is not None:
            score, kind = _find_score(found)
            figure = family_of(job.spec.build_space()).task.metric.from_percent(score)
            if short:
                model = trained.get(job.seed)
                figure, kind = model.valid.figure if model is not None and model.valid else None, "short"
            seconds, parameters = found.run.seconds + (found.finalists_seconds or 0.0), found.cost.parameters
            summaries.append(SearchSummary(job.seed, job.folder, found.text, figure, kind, seconds, parameters))
    return tuple(summaries)


def _find_score(found: SearchResult) -> tuple[float | None, str]:
    """Return how good a search takes its architecture to be on validation examples, never what a table says of test.

    Examples that the search did not use come first: an architecture looks too good on those that chose it. The score
    is in percent.
    """
    if found.shared_score is not None:
        return 100 * found.shared_score, "shared"
    same = [record for record in found.history if record.architecture == found.architecture]
    epochs = [record.derived_score for record in same if isinstance(record, EpochRecord)]
    epochs = [score for score in epochs if not math.isnan(score)]
    if epochs:
        return 100 * epochs[-1], "shared"
    scores = [record.score for record in same if isinstance(record, TrialRecord) and not math.isnan(record.score)]
    return max(scores, default=None), "score"


def choose_searches(pipeline: PipelineSpec, searches: Sequence[SearchSummary]) -> list[int]:
    """Return the seeds of the searches to retrain: all that finished, or the best once all have finished."""
    if pipeline.settings.protocol == "repeats":
        return [found.seed for found in searches]
    if len(searches) < len(pipeline.seeds):
        return []
    if len(searches) == 1:
        return [searches[0].seed]
    known = [found for found in searches if found.figure is not None]
    direction = metric_of(pipeline).direction
    # the first of equals
    return [max(known, key=lambda found: (direction * (found.figure or 0.0), -found.seed)).seed] if known else []


def _summarize_models(jobs: Sequence[RetrainJob]) -> tuple[ModelSummary, ...]:
    models = [(job, _read_model(job)) for job in jobs]
    return tuple(
        ModelSummary(
            search=job.search,
            seed=job.seed,
            path=job.folder,
            test=model.test.figure if model.test else None,
            valid=model.valid.figure if model.valid else None,
            seconds=model.run.seconds,
            parameters=model.cost.parameters,
            caution=model.caution,
        )
        for job, model in models
        if model is not None
    )


def _read_search(job: SearchJob) -> SearchResult | None:
    try:
        return read_result(job.run_folder, job.spec.build_space())
    except ArchloomError:  # damaged: it is run again, and does not count until then
        return None


def _read_model(job: RetrainJob) -> RetrainResult | None:
    try:
        return read_retrain_result(job.run_folder)
    except ArchloomError:  # likewise
        return None
