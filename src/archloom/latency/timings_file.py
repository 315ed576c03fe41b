"""Timed networks in a file beside the model that is made of them, so that what was measured is measured once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from archloom.core.errors import SettingError
from archloom.core.files import write_atomically
from archloom.core.tagged_json import read_tagged
from archloom.latency.fit import Timings

KIND = "archloom timings"


def timings_path(model: Path) -> Path:
    return model.with_suffix(".timings.json")


def write_timings(path: Path, timings: Timings, about: Mapping[str, Any]) -> None:
    content = {"kind": KIND, "about": about, "constants": timings.constants, "ratios": timings.ratios}
    write_atomically(path, (json.dumps(content) + "\n").encode())


def read_timings(path: Path, about: Mapping[str, Any]) -> Timings:
    """What was timed earlier in the same way; nothing where there is no file."""
    if not path.exists():
        return Timings()
    timings, timed = read_tagged(
        path, KIND, _parsed, otherwise="holds no timings of archloom latency fit, and must be removed"
    )
    wanted = json.loads(json.dumps(about))  # as a file tells it
    other = sorted(name for name in {*wanted, *timed} if wanted.get(name) != timed.get(name))
    if other:
        raise SettingError(f"{path} was timed with another {', '.join(other)}; remove it, or choose another --out")
    return timings


def _parsed(content: Mapping[str, Any]) -> tuple[Timings, dict[str, Any]]:
    numbers = {name: [float(one) for one in content[name]] for name in ("ratios", "constants")}
    if len(numbers["ratios"]) != len(numbers["constants"]):
        raise ValueError("it has not as many constants as ratios")
    return Timings(**numbers), dict(content["about"])


__all__ = ["read_timings", "timings_path", "write_timings"]
