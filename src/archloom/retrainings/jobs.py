"""One retraining as a job of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from archloom.core.events import JobListener
from archloom.core.settings import Settings, check, merge
from archloom.core.trust import Trust, current_trust, trusting
from archloom.execution.executors import Resources, Stop
from archloom.execution.job_progress import progress_listener
from archloom.execution.jobs import FolderJob
from archloom.execution.machine import Machine
from archloom.execution.run import RunOptions
from archloom.retrainings.folder import RetrainFolder
from archloom.retrainings.run import RetrainRequest, resolve_request, run_retraining
from archloom.retrainings.spec import RetrainData


@dataclass(frozen=True)
class RetrainJob(FolderJob):
    """Train the architecture that a search found, from scratch."""

    search: int  # the seed of the search
    seed: int
    source: Path  # the run folder of the search
    folder: Path
    recipe: str
    settings: Settings  # sections that override the recipe
    budget: str | None = None
    short: bool = False  # only compares searches, so it needs validation images
    trust: Trust = field(default_factory=current_trust, compare=False, repr=False)  # of the user who asked for it

    @property
    def run_folder(self) -> RetrainFolder:
        """Return the run folder of the job."""
        return RetrainFolder(self.folder)

    @property
    def resources(self) -> Resources:
        """Return what the training needs of a cluster."""
        values, _ = check("machine", Machine, self.settings.get("machine", {}))
        return Machine(**values).resources

    def run(self, emit: JobListener, stop: Stop) -> None:
        """Begin the training, or resume it where it was interrupted."""
        with trusting(*self.trust.texts, plugins=self.trust.plugins):
            self._run(emit, stop)

    def _run(self, emit: JobListener, stop: Stop) -> None:
        options = RunOptions(listeners=[progress_listener(self.name, emit)], stop=stop)
        run_retraining(self._request(), out=self.folder, options=options)

    def _request(self) -> RetrainRequest:
        """Resolve the settings; a training that compares searches holds images back, whatever its recipe says."""
        overrides = merge(self.settings, {"seed": self.seed})
        request = resolve_request(self.source, recipe=self.recipe, budget=self.budget, overrides=overrides)
        data = request.spec.data
        if not self.short or not isinstance(data, RetrainData) or data.split != "none":
            return request
        overrides = merge(overrides, {"data": {"split": "random"}})
        return resolve_request(self.source, recipe=self.recipe, budget=self.budget, overrides=overrides)
