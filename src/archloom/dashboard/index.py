"""All runs below the served folders, as they are now."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from archloom.core.leases import find_holder
from archloom.dashboard.folders import Folder, FolderTree
from archloom.dashboard.summaries import RunSummarizer, Summary, latest_change, summarize_jobs

FRESH = 0.9  # seconds for which an answer is given again without a look at the disk


class Index:
    """The summaries of all run folders; several threads may ask for them."""

    def __init__(self, roots: Sequence[Path], *, clock: Callable[[], float] = time.monotonic) -> None:
        self.tree = FolderTree(roots)
        self._clock, self._lock = clock, threading.Lock()
        self._readers: dict[Path, RunSummarizer] = {}
        self._folders: Mapping[str, Folder] = {}
        self._summaries: Mapping[str, Summary] = {}
        self._looked: float | None = None

    def refresh(self) -> Mapping[str, Summary]:
        """Return the summary of every folder by its key; the disk is read at most about once a second."""
        with self._lock:
            now = self._clock()
            if self._looked is None or now - self._looked >= FRESH:
                self._look()
                self._looked = self._clock()
            return self._summaries

    def find(self, key: str) -> tuple[Folder, Summary] | None:
        """Return a folder by its key; None for anything that is not below the served folders."""
        with self._lock:
            known = self._folders.get(key)
            if known is not None and known.mark == "run":
                return self._find_run(known)
        summary = self.refresh().get(key)
        return None if summary is None else (self._folders[key], summary)

    def _find_run(self, known: Folder) -> tuple[Folder, Summary] | None:
        """Return a run as it is now, without a look at any other."""
        folder = self.tree.look_again(known)
        if folder is None:
            return None
        return folder, self._summarize(folder)

    def _summarize(self, folder: Folder) -> Summary:
        return self._readers.setdefault(folder.path, RunSummarizer(folder.path)).summarize(folder)

    def members_of(self, key: str) -> list[Summary]:
        """Return the runs of a comparison or a pipeline."""
        return [summary for summary in self.refresh().values() if summary.parent == key]

    def find_path(self, path: Path) -> str | None:
        """Return the key of the run in this folder."""
        return next((key for key, folder in self._folders.items() if folder.path == path), None)

    def _look(self) -> None:
        folders = {folder.key: folder for folder in self.tree.find()}
        found: dict[str, Summary] = {}
        members: dict[str, list[Summary]] = {}
        for folder in folders.values():
            if folder.mark == "run":
                found[folder.key] = summary = self._summarize(folder)
                if folder.parent is not None:
                    members.setdefault(folder.parent, []).append(summary)
        for folder in folders.values():
            if folder.mark != "run":
                own = tuple(members.get(folder.key, ()))
                # processes that join a comparison hold its runs and not the whole
                running = find_holder(folder.path) is not None or any(one.state == "running" for one in own)
                found[folder.key] = summarize_jobs(folder, own, latest_change(folder.path), running=running)
        gone = self._readers.keys() - {folder.path for folder in folders.values()}
        for path in gone:
            del self._readers[path]
        self._folders, self._summaries = folders, {key: found[key] for key in folders}
