"""Jobs that are runs: each has a folder, which gives it a name and a state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from archloom.core.events import JobListener
from archloom.execution.executors import Resources, Stop
from archloom.execution.run_folder import RunFolder, State


class FolderJob(ABC):
    """A run that an executor starts; what is finished in its folder is not run again."""

    folder: Path

    @property
    def name(self) -> str:
        """Return the name of the folder."""
        return self.folder.name

    @property
    @abstractmethod
    def run_folder(self) -> RunFolder:
        """Return the run folder of the job."""

    @property
    def state(self) -> State:
        """Return the state of the run folder."""
        return self.run_folder.state

    @property
    @abstractmethod
    def resources(self) -> Resources:
        """Return what the run needs of a cluster."""

    @abstractmethod
    def run(self, emit: JobListener, stop: Stop) -> None:
        """Begin the run, or resume it where it was interrupted."""
