"""The health of a search over its epochs: signs of a collapse, and the warnings of the monitor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from archloom.core.metrics import ACCURACY
from archloom.reports.curves import Panel, panel_curves
from archloom.reports.tables import Table, number_table
from archloom.searches.records import EarlyStop, EpochRecord

_PANELS = (
    Panel("operations without weights", {"skip": "skip", "pool": "pool", "none": "none"}),
    Panel("largest eigenvalue of the logits' Hessian", {"eigenvalue": "validation loss"}),
    Panel("{score} lost by discretizing", {"gap": "mixture minus derived"}),
    Panel("entropy of a decision", {"entropy": "mean", "entropy_least": "least"}),
)


def health_curves(epochs: Sequence[EpochRecord]) -> str:
    """Draw shares of operations without weights, sharpness, the cost of discretizing, and the entropy of decisions."""
    names = [name for panel in _PANELS for name in panel.lines]
    series = {name: [_figure(record, name) for record in epochs] for name in names}
    score = "accuracy" if all(record.measure is ACCURACY for record in epochs) else "score"
    panels = [replace(panel, title=panel.title.format(score=score)) for panel in _PANELS]
    alarms = [epoch for epoch, _ in list_alarms(epochs)]
    label = "Health of the search over epochs" + (f", with alarms after epochs {_join(alarms)}" if alarms else "")
    return panel_curves([record.epoch + 1 for record in epochs], series, panels, label=label, alarms=alarms)


def _join(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def list_alarms(epochs: Sequence[EpochRecord]) -> list[tuple[int, str]]:
    """Return every epoch, counted from 1, after which the monitor warned, and its reason."""
    return [(record.epoch + 1, record.health.alarm) for record in epochs if record.health and record.health.alarm]


def group_alarms(epochs: Sequence[EpochRecord]) -> list[tuple[int, int, str]]:
    """Return the first and last epoch of every alarm: one that lasts is one alarm."""
    groups: list[tuple[int, int, str]] = []
    for epoch, reason in list_alarms(epochs):
        if groups and groups[-1][1] == epoch - 1 and groups[-1][2] == reason:
            groups[-1] = (groups[-1][0], epoch, reason)
        else:
            groups.append((epoch, epoch, reason))
    return groups


def tabulate_health(epochs: Sequence[EpochRecord]) -> Table:
    """Return what the curves show, a row per epoch, and the alarms."""
    alarms, names = dict(list_alarms(epochs)), [name for panel in _PANELS for name in panel.lines]
    rows = [
        (record.epoch + 1, *(_figure(record, name) for name in names), alarms.get(record.epoch + 1, ""))
        for record in epochs
        if record.health is not None
    ]
    return number_table(("epoch", *names, "alarm"), rows)


def _figure(record: EpochRecord, name: str) -> float:
    value = None if record.health is None else getattr(record.health, name)
    return math.nan if value is None else float(value)


def health_sentence(epochs: Sequence[EpochRecord], early_stop: EarlyStop | None) -> str:
    """Return what the monitor found."""
    if early_stop is not None:
        return f"{early_stop.sentence} "
    alarms = list_alarms(epochs)
    if not alarms:
        return "The monitor found nothing to warn about. "
    epoch, reason = alarms[0]
    more = "" if len(alarms) == 1 else f" It warned after {len(alarms)} epochs in all."
    return f"After epoch {epoch} the monitor warned: {reason}.{more} "
