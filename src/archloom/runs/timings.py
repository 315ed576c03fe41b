"""Timed networks in a file beside the model that is made of them, so that what was measured is measured once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from archloom.engine.latency_fit import Timings
from archloom.errors import DataError, SettingError, one_line
from archloom.files import reading, write_atomically

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
    with reading(path):
        data = path.read_bytes()
    try:
        content = json.loads(data)
        if content["kind"] != KIND:
            raise ValueError("it is of another kind")
        timings = Timings([float(one) for one in content["ratios"]], [float(one) for one in content["constants"]])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} holds no timings of archloom latency fit: {one_line(error)}; remove it") from error
    wanted = json.loads(json.dumps(about))  # as a file tells it
    other = sorted(name for name in {*wanted, *content["about"]} if wanted.get(name) != content["about"].get(name))
    if other:
        raise SettingError(f"{path} was timed with another {', '.join(other)}; remove it, or choose another --out")
    return timings


__all__ = ["read_timings", "timings_path", "write_timings"]
