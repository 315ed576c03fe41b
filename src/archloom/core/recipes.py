"""Recipes by name: complete experiments that come with the package, or lie in `recipes/` of a checkout.

Those below `compare/` are comparisons: several experiments in one file, for `archloom compare`. Those below `retrain/`
are ways to train one architecture, for `archloom retrain`.
"""

from __future__ import annotations

from pathlib import Path

from archloom.core.errors import SettingError, suggestion

_PACKAGE = Path(__file__).parents[1]
PLACES = (_PACKAGE / "recipes", _PACKAGE.parents[1] / "recipes")  # installed from a wheel, or a checkout in use
COMPARISONS, RETRAININGS, PIPELINES = "compare/", "retrain/", "run/"
NOT_SEARCHES = {  # folders of files for other commands than `archloom search`
    COMPARISONS: "a comparison of several experiments: archloom compare",
    RETRAININGS: "a way to train one architecture: archloom retrain ARCHITECTURE --recipe",
    PIPELINES: "a whole pipeline: archloom run",
}


def recipes() -> dict[str, Path]:
    """Every shipped recipe by its name: `first`, `cifar10/gdas`, ..."""
    return {name: path for name, path in shipped().items() if not name.startswith(tuple(NOT_SEARCHES))}


def comparisons() -> dict[str, Path]:
    """Every shipped comparison by its name: `compare/first`, ..."""
    return {name: path for name, path in shipped().items() if name.startswith(COMPARISONS)}


def retrainings() -> dict[str, Path]:
    """Every shipped recipe of a retraining by its name: `cifar`, `auto`, ..."""
    return {name.removeprefix(RETRAININGS): path for name, path in shipped().items() if name.startswith(RETRAININGS)}


def shipped() -> dict[str, Path]:
    folder = next((place for place in PLACES if place.is_dir()), None)
    if folder is None:
        return {}
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.toml"))}


def find_recipe(given: str) -> Path:
    """The file meant: a path to any TOML file, or the name of a shipped recipe."""
    for folder, what in NOT_SEARCHES.items():
        if given.startswith(folder) and given in shipped():
            raise SettingError(f"'{given}' is {what} {given}")
    return _find(given, recipes(), "recipe")


def find_comparison(given: str) -> Path:
    """The file meant: a path to any TOML file, or the name of a shipped comparison, with or without its folder."""
    known = comparisons()
    return _find(f"{COMPARISONS}{given}" if f"{COMPARISONS}{given}" in known else given, known, "comparison")


def find_retraining(given: str) -> Path:
    """The file meant: a path to any TOML file, or the name of a shipped recipe, with or without its folder."""
    name = given.removeprefix(RETRAININGS)
    known = retrainings()
    return _find(name.replace("-", "_") if name.replace("-", "_") in known else name, known, "recipe of a retraining")


def find_pipeline(given: str) -> Path:
    """The file meant: a path to any TOML file, or the name of a shipped pipeline, with or without its folder."""
    known = {name: path for name, path in shipped().items() if name.startswith(PIPELINES)}
    return _find(f"{PIPELINES}{given}" if f"{PIPELINES}{given}" in known else given, known, "pipeline")


def _find(given: str, known: dict[str, Path], kind: str) -> Path:
    if given in known:
        return known[given]
    if given.endswith(".toml") or Path(given).exists():
        return Path(given)
    raise SettingError(f"no {kind} '{given}'{suggestion(given, known)} (or the path of a .toml file)")


def summary(path: Path) -> str:
    """What a recipe says of itself: the comment in its first line."""
    first, _, _ = path.read_text(encoding="utf-8").partition("\n")
    return first.removeprefix("#").strip()
