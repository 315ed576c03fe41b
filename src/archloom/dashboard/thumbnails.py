"""Small drawings of cells for the overview, from files alone: neither torch nor a plug-in is imported."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from archloom.core.errors import ArchloomError
from archloom.core.json_object import JsonObject
from archloom.core.settings import read_toml
from archloom.dashboard.growing_file import parse_object
from archloom.reports.cells import draw_thumbnail
from archloom.spaces import SPACES

EMPTY = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'
LAST_BYTES = 262_144  # that hold the last record of any space


@lru_cache(maxsize=2000)
def draw_small(path: Path, moment: tuple[int, ...]) -> str:
    """Draw the first cell that a run found, trains, or would return now; `moment` changes with the folder."""
    try:
        for name in ("architecture.json", "result.json"):
            if (path / name).is_file():
                return _draw(parse_object((path / name).read_bytes()))
        config = read_toml(path / "config.toml")
        if "architecture" in config:
            return _draw(config)
        last = _last_record(path / "metrics.jsonl")
        return EMPTY if last is None else _draw({"space": config["space"], "architecture": last["architecture"]})
    except (ArchloomError, OSError, KeyError, TypeError, ValueError, AttributeError, IndexError):
        return EMPTY  # the overview says what is wrong


def _last_record(path: Path) -> JsonObject | None:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LAST_BYTES))
        lines = file.read().split(b"\n")[:-1]
    return parse_object(lines[-1]) if lines else None


def _draw(value: JsonObject | None) -> str:
    if value is None:
        return EMPTY
    settings = dict(value["space"])
    name = settings.pop("name")
    if name not in SPACES:
        return EMPTY
    space = SPACES[name].load()(**settings)
    graphs = space.graphs(space.check(value["architecture"]))
    return draw_thumbnail(graphs[0]) if graphs else EMPTY
