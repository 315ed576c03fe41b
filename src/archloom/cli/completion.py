"""What a shell completes: names of recipes, strategies, spaces and data sets, and run folders; none needs torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from archloom.core.recipes import COMPARISONS, PIPELINES, RUNS, comparisons, recipes, retrainings, shipped
from archloom.core.run_kinds import find_kind, list_folders
from archloom.data import DATA
from archloom.spaces import SPACES
from archloom.strategies import STRATEGIES


def _begin(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})


def complete_space(incomplete: str) -> list[str]:
    """Return the spaces that begin like this."""
    return _begin(SPACES, incomplete)


def complete_strategy(incomplete: str) -> list[str]:
    """Return the strategies that begin like this."""
    return _begin(STRATEGIES, incomplete)


def complete_data(incomplete: str) -> list[str]:
    """Return data sets, and folders and .npz files of the user."""
    return [*_begin(DATA, incomplete), *_complete_paths(incomplete, (".npz",))]


def complete_search(incomplete: str) -> list[str]:
    """Return what `archloom search` takes: recipes, data sets, folders, .npz and .toml files."""
    return [*_begin([*recipes(), *DATA], incomplete), *_complete_paths(incomplete, (".npz", ".toml"))]


def complete_pipeline(incomplete: str) -> list[str]:
    """Return what `archloom run` takes: pipelines, data sets, folders and files."""
    names = [name.removeprefix(PIPELINES) for name in shipped() if name.startswith(PIPELINES)]
    return [*_begin([*names, *DATA], incomplete), *_complete_paths(incomplete, (".npz", ".toml"))]


def complete_comparison(incomplete: str) -> list[str]:
    """Return what `archloom compare` takes: comparisons, folders and files."""
    names = [name.removeprefix(COMPARISONS) for name in comparisons()]
    return [*_begin(names, incomplete), *_complete_paths(incomplete, (".toml",))]


def complete_retraining(incomplete: str) -> list[str]:
    """Return the recipes of retrainings."""
    return _begin(retrainings(), incomplete)


def complete_run(incomplete: str) -> list[str]:
    """Return run folders: those in runs/, and those where the user is typing."""
    typed = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    folders = [*list_folders(RUNS), *list_folders(typed)]
    runs = [str(folder) for folder in folders if find_kind(folder) is not None]
    return _begin(dict.fromkeys(runs), incomplete) or [f"{path}/" for path in _begin(map(str, folders), incomplete)]


def _complete_paths(incomplete: str, suffixes: tuple[str, ...]) -> list[str]:
    place = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    files = [path for path in place.iterdir() if path.suffix in suffixes] if place.is_dir() else []
    folders = [f"{path}/" for path in list_folders(place) if not path.name.startswith(".")]
    return _begin([*folders, *map(str, files)], incomplete)
