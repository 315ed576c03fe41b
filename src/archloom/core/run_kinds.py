"""Which kind of run a folder holds, by the file that each kind leaves in it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

from archloom.core.errors import SettingError, suggestion

Kind = Literal["search", "retraining", "comparison", "pipeline"]
CONFIG, RETRAINING = "config.toml", "retrain"
_MANY: dict[str, Kind] = {"comparison.toml": "comparison", "pipeline.toml": "pipeline"}


def find_kind(folder: Path) -> Kind | None:
    """Return the kind of run in a folder, None where there is none."""
    for name, kind in _MANY.items():
        if (folder / name).is_file():
            return kind
    if not (folder / CONFIG).is_file():
        return None
    try:
        content = tomllib.loads((folder / CONFIG).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):  # damaged: opening the run says how
        return "search"
    return "retraining" if content.get("kind") == RETRAINING else "search"


def require_kind(folder: Path) -> Kind:
    """Return the kind of run in a folder; a SettingError names runs nearby where it holds none."""
    kind = find_kind(folder)
    if kind is None:
        raise SettingError(f"no run at {folder}: {CONFIG} is missing{_near_runs(folder)}")
    return kind


def _near_runs(path: Path) -> str:
    """Return a hint at runs inside the folder or, if there are none, beside it."""
    for folder in (path, path.parent):
        runs = [child.name for child in list_folders(folder) if find_kind(child) is not None]
        if runs:
            return suggestion(path.name, runs)
    return ""


def list_folders(folder: Path) -> list[Path]:
    """Return the folders in a folder, in order; none where it cannot be read."""
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    except OSError:
        return []
