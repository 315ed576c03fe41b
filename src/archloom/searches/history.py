"""Questions that reports ask of the records of a search."""

from __future__ import annotations

import math
from collections.abc import Sequence

from archloom.core.json_object import JsonObject
from archloom.core.metrics import ACCURACY
from archloom.searches.records import EpochRecord, SearchRecord, TrialRecord

BEST = "best"  # the best score so far, among the figures of a trial


def epochs_of(history: Sequence[SearchRecord]) -> list[EpochRecord]:
    """Return the records of a one-shot search; none of a black-box one."""
    return [record for record in history if isinstance(record, EpochRecord)]


def trials_of(history: Sequence[SearchRecord]) -> list[TrialRecord]:
    """Return the records of a black-box search; none of a one-shot one."""
    return [record for record in history if isinstance(record, TrialRecord)]


def unit_of(history: Sequence[SearchRecord]) -> str:
    """Return what a record stands for, 'epoch' or 'trial'."""
    return "trial" if trials_of(history) else "epoch"


def metric_series(epochs: Sequence[EpochRecord]) -> dict[str, list[float]]:
    """Return every metric that has a number anywhere, one number per record, NaN where a record has none."""
    names = dict.fromkeys(name for record in epochs for name, value in record.metrics.items() if not math.isnan(value))
    return {name: [record.metrics.get(name, math.nan) for record in epochs] for name in names}


def find_changes(epochs: Sequence[EpochRecord]) -> list[bool]:
    """Return for every record whether its architecture differs from the one before."""
    pairs = zip(epochs[1:], epochs, strict=False)
    return [False, *(now.architecture != before.architecture for now, before in pairs)][: len(epochs)]


def best_trial(trials: Sequence[TrialRecord]) -> TrialRecord:
    """Return the trial that a search returns: the best complete one, the first of equals.

    Scores of pruned trials come from fewer epochs and do not compare; they count only where there are no others.
    """
    complete = [record for record in trials if not record.pruned]
    return max(complete or trials, key=lambda record: record.merit)


def chosen_so_far(history: Sequence[SearchRecord]) -> SearchRecord | None:
    """Return the record of what an unfinished search would return: the best trial, or the latest epoch."""
    if not history:
        return None
    trials = trials_of(history)
    return best_trial(trials) if trials else history[-1]


def trial_figures(record: TrialRecord) -> dict[str, float]:
    """Return score and best score of a trial as people read them: in percent, or as perplexities."""
    if record.measure is ACCURACY:
        return {"score": record.score, BEST: record.best}
    name, to_value = record.measure.name, record.measure.to_value
    return {name: to_value(record.score / 100), f"{BEST}_{name}": to_value(record.best / 100)}


def flatten_record(record: SearchRecord) -> JsonObject:
    """Return a record as one row of a table: figures by the name of their metric, without option choices.

    Metrics, health and table entry become columns.
    """
    row, nested = record.to_json(), {"metrics": "", "health": "", "table_entry": "table_"}
    apart = (*nested, "architecture", "probabilities", "metric")
    flat = {name: value for name, value in row.items() if name not in apart}
    if isinstance(record, EpochRecord):
        flat = record.measure.name_figures(flat, record.measure.to_figure)
    elif record.measure is not ACCURACY:
        flat = {**{name: value for name, value in flat.items() if name not in ("score", BEST)}, **trial_figures(record)}
    for name, prefix in nested.items():
        flat |= {f"{prefix}{key}": value for key, value in (row.get(name) or {}).items()}
    return flat


def list_figures(record: SearchRecord) -> dict[str, float]:
    """Return the figures of a record by name, as trackers of experiments get them."""
    if isinstance(record, EpochRecord):
        metric = record.measure
        figures = {**record.metrics, f"derived_{metric.name}": metric.to_figure(record.derived_score)}
    else:
        figures = {name: value for name, value in trial_figures(record).items() if not name.startswith(BEST)}
    if record.table_entry is not None:
        figures["table_test_accuracy"] = record.table_entry.test
    return figures
