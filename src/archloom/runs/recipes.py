"""Recipes by name: complete experiments that come with the package, or lie in `recipes/` of a checkout.

Those below `compare/` are comparisons: several experiments in one file, for `archloom compare`.
"""

from __future__ import annotations

from pathlib import Path

from archloom.errors import SettingError, suggestion

_PACKAGE = Path(__file__).parents[1]
PLACES = (_PACKAGE / "recipes", _PACKAGE.parents[1] / "recipes")  # installed from a wheel, or a checkout in use
COMPARISONS = "compare/"


def recipes() -> dict[str, Path]:
    """Every shipped recipe by its name: `first`, `cifar10/gdas`, ..."""
    return {name: path for name, path in shipped().items() if not name.startswith(COMPARISONS)}


def comparisons() -> dict[str, Path]:
    """Every shipped comparison by its name: `compare/first`, ..."""
    return {name: path for name, path in shipped().items() if name.startswith(COMPARISONS)}


def shipped() -> dict[str, Path]:
    folder = next((place for place in PLACES if place.is_dir()), None)
    if folder is None:
        return {}
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.toml"))}


def find_recipe(given: str) -> Path:
    """The file meant: a path to any TOML file, or the name of a shipped recipe."""
    if given in comparisons():
        raise SettingError(f"'{given}' is a comparison of several experiments: archloom compare {given}")
    return _find(given, recipes(), "recipe")


def find_comparison(given: str) -> Path:
    """The file meant: a path to any TOML file, or the name of a shipped comparison, with or without its folder."""
    known = comparisons()
    return _find(f"{COMPARISONS}{given}" if f"{COMPARISONS}{given}" in known else given, known, "comparison")


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
