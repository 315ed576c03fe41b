"""One search as a job of a comparison or of a pipeline."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from archloom.core.errors import SettingError
from archloom.core.events import JobListener
from archloom.core.settings import Settings, flatten, write_toml
from archloom.core.trust import Trust, current_trust, trusting
from archloom.execution.executors import Resources, Stop
from archloom.execution.job_progress import progress_listener
from archloom.execution.jobs import FolderJob
from archloom.execution.run import RunOptions
from archloom.execution.run_folder import RunFolder
from archloom.execution.run_settings import MAY_DIFFER
from archloom.searches.plan import has_plan
from archloom.searches.run import resume_search, run_search
from archloom.searches.spec import SearchSpec

FEWEST_THREADS = {"machine": {"torch_threads": 1}}  # searches that run at the same time slow each other down with more


@dataclass(frozen=True)
class SearchJob(FolderJob):
    """One search in its folder."""

    entry: str  # of a comparison
    seed: int
    spec: SearchSpec
    folder: Path
    trust: Trust = field(default_factory=current_trust, compare=False, repr=False)  # of the user who asked for it

    @property
    def run_folder(self) -> RunFolder:
        """Return the run folder of the job."""
        return RunFolder(self.folder)

    @property
    def resources(self) -> Resources:
        """Return what the search needs of a cluster."""
        return self.spec.machine.resources

    def run(self, emit: JobListener, stop: Stop) -> None:
        """Begin the search, or resume it where it was interrupted; the report is written later."""
        with trusting(*self.trust.texts, plugins=self.trust.plugins):
            self._run(emit, stop)

    def _run(self, emit: JobListener, stop: Stop) -> None:
        options = RunOptions(listeners=[progress_listener(self.name, emit)], stop=stop, report=False)
        if not self.run_folder.config_path.is_file():
            run_search(self.spec, out=self.folder, options=options)
            return
        here = {name: getattr(self.spec.machine, name) for name in ("device", "torch_threads", "loader_threads")}
        folder = self.spec.data.directory
        settings = {"machine": here, "data": {} if folder is None else {"directory": folder}}
        resume_search(self.run_folder, settings=settings, options=options)


def refuse_changed(jobs: Sequence[SearchJob]) -> None:
    """Raise a SettingError if a run began with other settings: it is neither resumed nor overwritten."""
    problems = [line for job in jobs if job.run_folder.config_path.is_file() for line in _list_changes(job)]
    if problems:
        raise SettingError(problems)


def _list_changes(job: SearchJob) -> Iterator[str]:
    now, had = _as_written(job.spec.to_settings()), job.run_folder.config
    if now == _as_written(had):
        return
    written = _as_written(SearchSpec.resolve(had).to_settings())  # with settings that are newer than the run
    planned = written.keys() - flatten(job.spec.given).keys() if has_plan(job.spec) else ()
    for name in dict.fromkeys([*now, *written]):
        if name not in planned and now.get(name) != written.get(name):
            yield (
                f"{job.folder} was begun with {name} = {written.get(name)!r}, now it is {now.get(name)!r}; "
                "change it back, or choose another --out"
            )


def _as_written(settings: Settings) -> Settings:
    """Return the settings as a file gives them back, by dotted name, without those that may differ."""
    flat = flatten(tomllib.loads(write_toml(settings)))
    return {name: value for name, value in flat.items() if not name.startswith(MAY_DIFFER)}
