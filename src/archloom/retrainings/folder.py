"""The folder of a retraining: as that of a search, but its result is `result.json`, and it holds models."""

from __future__ import annotations

from pathlib import Path

from archloom.core.settings import read_toml
from archloom.execution.run_folder import RunFolder
from archloom.retrainings.spec import KIND

RESULT = "result.json"


class RetrainFolder(RunFolder):
    """The folder of one retraining."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.architecture_path = path / RESULT


def is_retraining(path: Path) -> bool:
    """Return whether the run in this folder trains one architecture instead of searching for one."""
    config = RunFolder(path).config_path
    return config.is_file() and read_toml(config).get("kind") == KIND
