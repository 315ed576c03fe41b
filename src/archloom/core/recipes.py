"""Recipes by name: the TOML files that come with the package, or are in `recipes/` of a checkout.

The folder of a recipe says which command it is for: `compare/`, `retrain/` and `run/`; all others are searches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from archloom.core.errors import SettingError, suggestion
from archloom.core.files import exists
from archloom.core.settings import Settings, read_toml

_PACKAGE = Path(__file__).parents[1]
PLACES = (_PACKAGE / "recipes", _PACKAGE.parents[1] / "recipes")  # installed from a wheel, or a checkout in use
RUNS = Path("runs")  # where run folders are made
COMPARISONS, RETRAININGS, PIPELINES = "compare/", "retrain/", "run/"
NOT_SEARCHES = {  # folders of files for other commands than `archloom search`
    COMPARISONS: "a comparison of several searches: archloom compare",
    RETRAININGS: "a way to train one architecture: archloom retrain ARCHITECTURE --recipe",
    PIPELINES: "a whole pipeline: archloom run",
}


def recipes() -> dict[str, Path]:
    """Return every shipped recipe of a search by its name: `first`, `cifar10/gdas`, ..."""
    return {name: path for name, path in shipped().items() if not name.startswith(tuple(NOT_SEARCHES))}


def comparisons() -> dict[str, Path]:
    """Return every shipped comparison by its name: `compare/first`, ..."""
    return {name: path for name, path in shipped().items() if name.startswith(COMPARISONS)}


def retrainings() -> dict[str, Path]:
    """Return every shipped recipe of a retraining by its name: `cifar`, `auto`, ..."""
    return {name.removeprefix(RETRAININGS): path for name, path in shipped().items() if name.startswith(RETRAININGS)}


def shipped() -> dict[str, Path]:
    """Return every shipped recipe of any kind by its name, with its folder."""
    folder = next((place for place in PLACES if place.is_dir()), None)
    if folder is None:
        return {}
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.toml"))}


def find_recipe(given: str) -> Path:
    """Return the file of a recipe: any TOML file by its path, or a shipped one by its name."""
    for folder, what in NOT_SEARCHES.items():
        if given.startswith(folder) and given in shipped():
            raise SettingError(f"'{given}' is {what} {given}")
    return _find(given, recipes(), "recipe")


def find_comparison(given: str) -> Path:
    """Return the file of a comparison: by its path, or a shipped one by its name with or without the folder."""
    known = comparisons()
    return _find(f"{COMPARISONS}{given}" if f"{COMPARISONS}{given}" in known else given, known, "comparison")


def find_retraining(given: str) -> Path:
    """Return the file of a retraining: by its path, or a shipped one by its name with or without the folder."""
    name = given.removeprefix(RETRAININGS)
    known = retrainings()
    return _find(name.replace("-", "_") if name.replace("-", "_") in known else name, known, "recipe of a retraining")


def find_pipeline(given: str) -> Path:
    """Return the file of a pipeline: by its path, or a shipped one by its name with or without the folder."""
    known = {name: path for name, path in shipped().items() if name.startswith(PIPELINES)}
    return _find(f"{PIPELINES}{given}" if f"{PIPELINES}{given}" in known else given, known, "pipeline")


def _find(given: str, known: dict[str, Path], kind: str) -> Path:
    if given in known:
        return known[given]
    if given.endswith(".toml") or exists(Path(given)):
        return Path(given)
    raise SettingError(f"no {kind} '{given}'{suggestion(given, known)} (or the path of a .toml file)")


def summary(path: Path) -> str:
    """Return the description of a recipe: the comment in its first line."""
    first, _, _ = path.read_text(encoding="utf-8").partition("\n")
    return first.removeprefix("#").strip()


@dataclass(frozen=True)
class SpecSource:
    """A comparison or a pipeline before it is resolved: its settings, and where it runs."""

    settings: Settings
    beside: Path  # the folder that paths of recipes start from
    folder: Path  # the same every time, so that starting it again resumes it


SPEC_FILES: Mapping[str, tuple[str, Callable[[str], Path]]] = {
    "compare": ("comparison.toml", find_comparison),
    "run": ("pipeline.toml", find_pipeline),
}
"""By command: the file that a folder of its results has, and how a file is found by name."""


def find_spec(
    command: Literal["compare", "run"], given: str | Path | Settings, root: Path, *, out: Path | None = None
) -> SpecSource:
    """Return what a command is to run: a mapping, a TOML file, a shipped recipe, or a folder of results to continue.

    The folder of results is `out`, else the folder given, else one below `root`.
    """
    file_name, find_file = SPEC_FILES[command]
    if isinstance(given, Mapping):
        return SpecSource(given, Path(), out or root / f"{command}-{Path(file_name).stem}")
    folder = Path(given)
    if (folder / file_name).is_file():
        return SpecSource(read_toml(folder / file_name), folder, out or folder)
    path = find_file(str(given))
    return SpecSource(read_toml(path), path.parent, out or root / f"{command}-{path.stem}")


def read_recipe(given: Any, beside: Path) -> Settings:
    """Return the settings of the search recipe that a comparison or a pipeline names, without its seed."""
    if given is None:
        return {}
    path = recipe_path(given, beside)
    settings = read_toml(path if path.suffix == ".toml" else find_recipe(str(given)))
    return {name: value for name, value in settings.items() if name != "seed"}


def recipe_path(given: Any, beside: Path) -> Path:
    """Return the path of a recipe that a comparison or a pipeline names; a name without .toml stays as it is."""
    if not isinstance(given, str):
        raise SettingError(f"recipe must be the name of a recipe or the path of a .toml file, got {given!r}")
    return beside / given if given.endswith(".toml") else Path(given)
