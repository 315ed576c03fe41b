"""Recipes by name: complete experiments that come with the package, or lie in `recipes/` of a checkout."""

from __future__ import annotations

from pathlib import Path

import archloom
from archloom.errors import SettingError, suggestion

_PACKAGE = Path(archloom.__file__).parent
PLACES = (_PACKAGE / "recipes", _PACKAGE.parents[1] / "recipes")  # installed from a wheel, or a checkout in use


def recipes() -> dict[str, Path]:
    """Every shipped recipe by its name: `first`, `cifar10/gdas`, ..."""
    folder = next((place for place in PLACES if place.is_dir()), None)
    if folder is None:
        return {}
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.toml"))}


def find_recipe(given: str) -> Path:
    """The file meant: a path to any TOML file, or the name of a shipped recipe."""
    shipped = recipes()
    if given in shipped:
        return shipped[given]
    if given.endswith(".toml") or Path(given).exists():
        return Path(given)
    raise SettingError(f"no recipe '{given}'{suggestion(given, shipped)} (or the path of a .toml file)")


def summary(path: Path) -> str:
    """What a recipe says of itself: the comment in its first line."""
    first, _, _ = path.read_text(encoding="utf-8").partition("\n")
    return first.removeprefix("#").strip()
