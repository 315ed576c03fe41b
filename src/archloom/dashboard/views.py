"""What is known of one run now: its records so far, its result once there is one. Pages are made from it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from archloom.core.errors import ArchloomError
from archloom.core.settings import Settings, read_toml
from archloom.dashboard.folders import Folder
from archloom.dashboard.growing_file import RecordFile
from archloom.execution.run_folder import RunFolder
from archloom.policies.posterior import Posterior
from archloom.retrainings.folder import RetrainFolder
from archloom.retrainings.records import RetrainRecord
from archloom.retrainings.result import RetrainResult, read_retrain_result
from archloom.searches.posterior import posterior
from archloom.searches.records import EpochRecord, FinalistRecord, SearchRecord, read_record
from archloom.searches.report import ReportData
from archloom.searches.result import SearchResult, read_result
from archloom.spaces import SPACES, CellGraph, SearchSpace
from archloom.strategies import STRATEGIES


class RunView:
    """The configuration of a run, and its records as they come."""

    def __init__(self, folder: Folder) -> None:
        self.key, self.path = folder.key, folder.path
        self._lock = threading.Lock()

    @cached_property
    def config(self) -> Settings:
        """Return the contents of config.toml, which does not change."""
        return read_toml(self.path / "config.toml")

    @cached_property
    def space(self) -> SearchSpace | None:
        """Return the search space; None for a plug-in: a page must not import what a folder names."""
        settings = dict(self.config.get("space") or {})
        name = str(settings.pop("name", ""))
        if name not in SPACES:
            return None
        try:
            built: SearchSpace = SPACES[name].load()(**settings)
        except (ArchloomError, TypeError):  # settings of another version
            return None
        return built

    def graphs(self, architecture: Settings) -> tuple[CellGraph, ...]:
        """Return the cells of an architecture; none where the space is not here, or does not fit."""
        if self.space is None:
            return ()
        try:
            return tuple(self.space.graphs(self.space.check(architecture)))
        except (ArchloomError, KeyError, TypeError):
            return ()


class SearchView(RunView):
    """A search."""

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self._records = RecordFile(self.path / "metrics.jsonl", read_record)
        self._notes = RecordFile(self.path / "finalists.jsonl", FinalistRecord.from_json)
        self.result: SearchResult | None = None
        self._result_file: int | None = None
        self._posterior: Posterior | None = None
        self._newest_checkpoint: Path | None = None

    def update(self) -> None:
        """Read what is new."""
        with self._lock:
            self._records.update()
            self._notes.update()
            found = _changed(self.path / "architecture.json")
            if found != self._result_file:
                self.result = None if found is None or self.space is None else self._read_result(self.space)
                self._result_file = found

    def _read_result(self, space: SearchSpace) -> SearchResult | None:
        return read_result(RunFolder(self.path), space)

    @property
    def history(self) -> Sequence[SearchRecord]:
        """Return the records so far."""
        return tuple(self._records.records)

    @property
    def notes(self) -> Sequence[FinalistRecord]:
        """Return the finalists that were trained so far."""
        return tuple(self._notes.records)

    @property
    def damaged(self) -> int:
        """Return how many lines could not be read."""
        return self._records.damaged + self._notes.damaged

    @property
    def version(self) -> str:
        """Return a text that changes whenever the page would."""
        drawn = self._newest_checkpoint.name if self._newest_checkpoint is not None else ""
        return f"{len(self.history)}-{len(self.notes)}-{self._result_file or 0}-{drawn}"

    @property
    def posterior(self) -> Posterior | None:
        """Return what the draws of a running search say so far, read once from each checkpoint; None without draws."""
        entry = STRATEGIES.get(_name(self.config, "strategy"))
        if self.result is not None or entry is None or not hasattr(entry.load(), "summarize_chains"):
            return None
        newest = next(iter(RunFolder(self.path).checkpoints.paths()), None)
        with self._lock:
            if newest != self._newest_checkpoint:
                self._posterior, self._newest_checkpoint = self._read_posterior(), newest
        return self._posterior

    def _read_posterior(self) -> Posterior | None:
        try:
            return posterior(self.path)
        except ArchloomError:  # no draws yet, a damaged checkpoint, or a plug-in
            return None

    @property
    def report(self) -> ReportData:
        """Return what a report is made of."""
        title = f"{_name(self.config, 'strategy')} on {_name(self.config, 'space')}"
        return ReportData(
            title=f"{title}, {_name(self.config, 'data')}, seed {self.config.get('seed')}",
            subtitle=self.key,
            settings=self.config,
            history=self.history,
            result=self.result,
            space=self.space,
            posterior=self.posterior,
        )

    @property
    def epochs(self) -> list[EpochRecord]:
        """Return the records of epochs."""
        return [record for record in self.history if isinstance(record, EpochRecord)]


class RetrainView(RunView):
    """A retraining."""

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self._records = RecordFile(self.path / "metrics.jsonl", RetrainRecord.from_json)
        self.result: RetrainResult | None = None
        self._result_file: int | None = None

    def update(self) -> None:
        """Read what is new."""
        with self._lock:
            self._records.update()
            found = _changed(self.path / "result.json")
            if found != self._result_file:
                self.result = None if found is None else read_retrain_result(RetrainFolder(self.path))
                self._result_file = found

    @property
    def history(self) -> Sequence[RetrainRecord]:
        """Return the records so far."""
        return tuple(self._records.records)

    @property
    def damaged(self) -> int:
        """Return how many lines could not be read."""
        return self._records.damaged

    @property
    def version(self) -> str:
        """Return a text that changes whenever the page would."""
        return f"{len(self.history)}-{self._result_file or 0}"


def _changed(path: Path) -> int | None:
    """Return when a file was last written; None if there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _name(config: Settings, section: str) -> str:
    return str(dict(config.get(section) or {}).get("name", "?"))
