"""Durations as people write them: `30m`, `1h30m`, `45s`."""

from __future__ import annotations

import re

from archloom.core.errors import SettingError

_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(h|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}


def parse_duration(text: str) -> float:
    """Return `30m`, `1h30m`, `45s` in seconds.

    Raises:
        SettingError: the text is not a duration.
    """
    cleaned = text.strip().lower()
    parts = _PART.findall(cleaned)
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if not parts or _PART.sub("", cleaned).strip() or not 0 < seconds < 1e8:
        raise SettingError(f"a budget is written like 30m, 2h or 1h30m, got '{text}'")
    return seconds


def format_duration(seconds: float) -> str:
    """Return a duration in the largest units, to the second: `1h30m`, `45s`."""
    whole = max(1, round(seconds))
    parts = ((whole // 3600, "h"), (whole // 60 % 60, "m"), (whole % 60, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)
