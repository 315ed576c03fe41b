"""Reading the records of a run: anything may be missing or not a number, and a report must still be drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]
History = Sequence[Record]


def number(value: object) -> float:
    """The value as a finite number, or NaN for whatever is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    return float(value) if math.isfinite(value) else math.nan


def find(record: Record | None, *path: str) -> Any:
    """What stands under `path`, or None where any step of it is missing."""
    value: Any = record
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def series(history: History, *path: str) -> list[float]:
    """One number per record; NaN where there is none."""
    return [number(find(record, *path)) for record in history]


def known(values: Sequence[float]) -> list[float]:
    """The numbers among the values."""
    return [value for value in values if not math.isnan(value)]


def has_trials(history: History) -> bool:
    """Whether the records are trials of a black-box strategy rather than epochs."""
    return any("trial" in record for record in history)


def positions(history: History) -> list[float]:
    """The epoch (or trial) of every record, as written; its place in the list where none is written."""
    written = series(history, "trial" if has_trials(history) else "epoch")
    return [float(place) if math.isnan(value) else value for place, value in enumerate(written)]


def metric_names(history: History) -> list[str]:
    """The metrics that have a number anywhere, in the order in which they first appear."""
    names: dict[str, None] = {}
    for record in history:
        metrics = find(record, "metrics")
        if isinstance(metrics, Mapping):
            names.update((name, None) for name, value in metrics.items() if not math.isnan(number(value)))
    return list(names)


def has_standing(history: History) -> bool:
    """Whether a table knows the score of what was derived, at least once."""
    return bool(known(series(history, "standing", "test")))


def changes(history: History) -> list[bool]:
    """For every record, whether its architecture differs from the one last known before it."""
    changed, last = [], None
    for record in history:
        current = find(record, "architecture")
        changed.append(last is not None and current is not None and current != last)
        last = current if current is not None else last
    return changed


def last_record_with(history: History, *path: str) -> Record | None:
    """The latest record that has something under `path`."""
    return next((record for record in reversed(history) if find(record, *path) is not None), None)


def chosen_so_far(history: History) -> Record | None:
    """The record of what an unfinished run would return: the best trial, or the latest epoch."""
    if has_trials(history):
        scored = [record for record in history if not math.isnan(number(find(record, "score")))]
        return max(scored, key=lambda record: number(record["score"]), default=None)
    return last_record_with(history, "architecture")
