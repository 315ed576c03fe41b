"""What the runs of a pipeline say together: which search is best by validation, and how good the trained models are.

Everything is read from the folders of the runs, so that it can be told at any moment and again later.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from archloom.core.errors import StorageError
from archloom.pipelines.spec import PipelineSpec
from archloom.pipelines.spread import Spread, spread_of
from archloom.retrainings.jobs import RetrainJob
from archloom.searches.jobs import SearchJob

FIGURES = {
    "shared": "validation accuracy under the shared weights of its search",
    "score": "best validation score of its trials",
    "short": "validation accuracy after a short training",
}


@dataclass(frozen=True)
class Found:
    """What one search found."""

    seed: int
    path: Path
    text: str
    figure: float | None  # by validation images; higher is better
    figure_kind: str  # which of FIGURES
    seconds: float | None
    parameters: int | None


@dataclass(frozen=True)
class Trained:
    """One training from scratch."""

    search: int
    seed: int
    path: Path
    test: float | None  # top-1, in percent
    valid: float | None
    seconds: float | None
    parameters: int | None


@dataclass(frozen=True)
class PipelineOutcome:
    """All that is known of a pipeline."""

    title: str
    protocol: str
    searches: int  # asked for
    wanted: int  # retrainings asked for
    found: tuple[Found, ...]
    picked: int | None  # the seed of the search that was picked, where one is
    trained: tuple[Trained, ...]
    failures: Mapping[str, str] = field(default_factory=dict)  # why, by the name of the run
    exported: tuple[Path, ...] = ()

    @property
    def spread(self) -> Spread | None:
        """Of test accuracies, over searches and over retrainings."""
        known = [run for run in self.trained if run.test is not None]
        seeds = dict.fromkeys(run.search for run in known)
        groups = [[run.test for run in known if run.search == seed and run.test is not None] for seed in seeds]
        return spread_of(groups) if groups else None

    @property
    def best(self) -> Trained | None:
        """The model to use: by validation, or the first one where nothing was held back to tell."""
        judged = [run for run in self.trained if run.valid is not None]
        if judged:
            return max(judged, key=lambda run: (run.valid or 0.0, -run.search, -run.seed))
        return self.trained[0] if self.trained else None

    @property
    def complete(self) -> bool:
        return len(self.found) == self.searches and len(self.trained) == self.wanted

    def to_json(self) -> str:
        best, spread = self.best, self.spread
        content = {
            **{name: getattr(self, name) for name in ("title", "protocol", "searches", "picked", "complete")},
            "found": [asdict(run) for run in self.found],
            "trained": [asdict(run) for run in self.trained],
            "spread": None if spread is None else {**asdict(spread), "sentence": spread.sentence},
            "best": None if best is None else str(best.path),
            "exported": list(self.exported),
            "failures": dict(self.failures),
        }
        return json.dumps(content, indent=1, default=str) + "\n"


def found_by(jobs: Sequence[SearchJob], short: Sequence[RetrainJob] = ()) -> tuple[Found, ...]:
    """What the searches that have finished found; by short trainings where there are any."""
    trained = {job.search: _result(job) for job in short}
    return tuple(
        _found(job, details, trained.get(job.seed) if short else None, bool(short))
        for job in jobs
        if (details := _result(job)) is not None
    )


def _found(job: SearchJob, details: Mapping[str, Any], short: Mapping[str, Any] | None, by_short: bool) -> Found:
    figure, kind = _search_figure(job, details)
    if by_short:
        figure, kind = ((short or {}).get("valid") or {}).get("top1"), "short"
    return Found(
        seed=job.seed,
        path=job.folder,
        text=details["text"],
        figure=figure,
        figure_kind=kind,
        seconds=(details.get("run") or {}).get("seconds"),
        parameters=(details.get("cost") or {}).get("parameters"),
    )


def _search_figure(job: SearchJob, details: Mapping[str, Any]) -> tuple[float | None, str]:
    """How good a search itself takes its architecture to be, on validation images; never what a table says of test.

    Images that took no part in finding it come first: what was chosen on some images looks too good on them.
    """
    if details.get("shared_accuracy") is not None:
        return 100 * details["shared_accuracy"], "shared"
    same = [record for record in job.run_folder.read_metrics() if record.get("architecture") == details["architecture"]]
    derived = [record["derived_accuracy"] for record in same if record.get("derived_accuracy") is not None]
    if derived:
        return 100 * derived[-1], "shared"
    scores = [record["score"] for record in same if record.get("score") is not None]
    return max(scores, default=None), "score"


def pick(found: Sequence[Found]) -> int | None:
    """The seed of the best search by validation; of equals the first."""
    judged = [run for run in found if run.figure is not None]
    return max(judged, key=lambda run: (run.figure or 0.0, -run.seed)).seed if judged else None


def trained_by(jobs: Sequence[RetrainJob]) -> tuple[Trained, ...]:
    """The trainings that have finished."""
    return tuple(_trained(job, details) for job in jobs if (details := _result(job)) is not None)


def _trained(job: RetrainJob, details: Mapping[str, Any]) -> Trained:
    return Trained(
        search=job.search,
        seed=job.seed,
        path=job.folder,
        test=(details.get("test") or {}).get("top1"),
        valid=(details.get("valid") or {}).get("top1"),
        seconds=(details.get("run") or {}).get("seconds"),
        parameters=(details.get("cost") or {}).get("parameters"),
    )


def _result(job: SearchJob | RetrainJob) -> dict[str, Any] | None:
    try:
        return job.run_folder.read_result()
    except StorageError:  # damaged: it is run again, and until then it is not there
        return None


def outcome_of(
    pipeline: PipelineSpec,
    folder: Path,
    *,
    failures: Mapping[str, str] | None = None,
    exported: Sequence[Path] = (),
) -> PipelineOutcome:
    """All that the folder of a pipeline says so far."""
    short = pipeline.short_trainings(folder)
    found = found_by(pipeline.searches(folder), short)
    chosen = chosen_searches(pipeline, found)
    settings = pipeline.settings
    picks = settings.protocol == "best_of_searches"
    return PipelineOutcome(
        title=settings.title,
        protocol=settings.protocol,
        searches=len(pipeline.seeds),
        wanted=settings.retrainings * (1 if picks else len(pipeline.seeds)),
        found=found,
        picked=chosen[0] if picks and chosen else None,
        trained=trained_by(pipeline.retrainings(folder, chosen)) if chosen else (),
        failures=failures or {},
        exported=tuple(exported),
    )


def chosen_searches(pipeline: PipelineSpec, found: Sequence[Found]) -> list[int]:
    """The seeds of the searches that are retrained: all that finished, or the best, once all have finished."""
    if pipeline.settings.protocol == "repeats":
        return [run.seed for run in found]
    if len(found) < len(pipeline.seeds):
        return []
    seed = found[0].seed if len(found) == 1 else pick(found)
    return [] if seed is None else [seed]
