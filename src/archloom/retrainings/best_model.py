"""The model of a folder: of a retraining its own, of any other run or folder of runs the best one in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from archloom.core.errors import ArchloomError, SettingError
from archloom.core.run_kinds import find_kind, list_folders
from archloom.retrainings.folder import RetrainFolder
from archloom.retrainings.model_file import BEST, LAST
from archloom.retrainings.result import RetrainResult, read_retrain_result

PICKING = "picking"  # short trainings of a pipeline, which only compare searches
DEEPEST = 3  # a pipeline's models are two folders below it


@dataclass(frozen=True)
class FoundModel:
    """A model file, and the reason for the choice where there was one."""

    path: Path
    reason: str = ""


def find_best_model(given: Path) -> FoundModel:
    """Return the model file of a path: the file itself, the model of a retraining, or the best one below a folder.

    The best has the highest validation accuracy; of equals, or without validation images, the first.

    Raises:
        SettingError: If there is none; the line says how to get one.
    """
    if not given.is_dir():
        if not given.is_file():
            raise SettingError(f"there is no model {given}")
        return FoundModel(given)
    own = _model_of(given)
    if own is not None:
        return FoundModel(own)
    trained = [(folder, result) for folder in _retrainings(given) if (result := _read(folder)) is not None]
    if not trained:
        raise SettingError(f"{given} holds no trained model; {_advise(given)}")
    folder, best = max(trained, key=lambda pair: -1.0 if pair[1].valid is None else pair[1].valid.top1)
    path = _model_of(folder)
    assert path is not None, "a finished retraining has a model"
    score = "the first: none was validated" if best.valid is None else f"validation accuracy {best.valid.top1:.2f} %"
    count = "the only model" if len(trained) == 1 else f"the best of {len(trained)} models"
    return FoundModel(path, f"using {folder}, {count} in {given} ({score})")


def _model_of(folder: Path) -> Path | None:
    return next((folder / name for name in (BEST, LAST) if (folder / name).is_file()), None)


def _retrainings(folder: Path, depth: int = 0) -> Iterator[Path]:
    for inner in list_folders(folder):
        if find_kind(inner) == "retraining":
            yield inner
        elif inner.name != PICKING and depth < DEEPEST:
            yield from _retrainings(inner, depth + 1)


def _read(folder: Path) -> RetrainResult | None:
    try:
        return read_retrain_result(RetrainFolder(folder)) if _model_of(folder) else None
    except ArchloomError:  # damaged: it cannot be compared
        return None


def _advise(folder: Path) -> str:
    """Return how to get a model of what the folder holds."""
    kind = find_kind(folder)
    if kind == "search":
        return f"train what the search found: archloom retrain {folder}"
    if kind == "retraining":
        return f"it has not finished: archloom resume {folder}"
    if kind == "pipeline":
        return f"it has not finished: archloom run {folder}"
    searches = [path for path in list_folders(folder / "runs" if kind == "comparison" else folder) if find_kind(path)]
    if searches:
        return f"train what a search found: archloom retrain {searches[0]}"
    return "expected a run of archloom retrain or run, or a model file"
