"""The page of a search: the report so far, the cells with their probabilities over time, and the race of finalists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from archloom.core.metrics import ACCURACY
from archloom.dashboard.page import Page
from archloom.dashboard.views import SearchView
from archloom.families import family_of
from archloom.reports.relaxed_cells import draw_relaxed
from archloom.reports.tables import Table, decimal, measured, whole
from archloom.searches.history import trial_figures
from archloom.searches.records import EpochRecord, FinalistRecord, SearchRecord
from archloom.searches.report import finalists_table, make_context
from archloom.searches.report_health import group_alarms
from archloom.spaces import SearchSpace


def make_search_page(view: SearchView) -> Page:
    """Return the page of a search as it is now."""
    history, result = view.history, view.result
    panels: dict[str, object] = {
        "moments": len(history) if view.space is not None else 0,
        "moment": describe_moment(history, len(history) - 1) if history else "",
        "unit": "epoch" if view.epochs or not history else "trial",
        "has_probabilities": any(record.probabilities for record in view.epochs),
        "race": Table("", ()) if result is not None else tabulate_race(view.notes, view.space),
        "alarms": group_alarms(view.epochs),
        "damaged": view.damaged,
        "plugin": view.space is None,
        "panels": "search_panels.html",
    }
    context = make_context(view.report, with_alarms=False)  # they have a panel of their own, with buttons
    return Page("template.html", {**context, **panels}, view.version)


def tabulate_race(notes: Sequence[FinalistRecord], space: SearchSpace | None) -> Table:
    """Return the finalists that were trained so far: the longest trainings first, and of these the lowest loss."""

    def order(note: FinalistRecord) -> tuple[float, float]:
        return -note.steps, math.inf if note.valid_loss is None else note.valid_loss

    named = [replace(note, text=note.text or _write_architecture(note, space)) for note in notes]
    return finalists_table(sorted(named, key=order), ACCURACY if space is None else family_of(space).task.metric)


def _write_architecture(note: FinalistRecord, space: SearchSpace | None) -> str:
    if space is None or set(note.architecture) != {decision.name for decision in space.decisions}:
        return ", ".join(f"{name}: {option}" for name, option in note.architecture.items())
    return space.format(note.architecture)


def draw_moment(view: SearchView, place: int) -> str:
    """Draw the cells after one epoch or trial, with the probability of every choice as the width of its edge."""
    if view.space is None or not 0 <= place < len(view.history):
        return ""
    record = view.history[place]
    rows = record.probabilities if isinstance(record, EpochRecord) else None
    return draw_relaxed(view.space, view.space.check(record.architecture), rows)


def describe_moment(history: Sequence[SearchRecord], place: int) -> str:
    """Return what is known of the architecture after one epoch or trial."""
    record = history[place]
    if isinstance(record, EpochRecord):
        parts = [f"After epoch {record.epoch + 1}"]
        if not math.isnan(record.derived_score):
            name = "" if record.measure.unit else f"{record.measure.name} "
            parts.append(f"{name}{measured(record.derived_score, record.measure)} with the shared weights")
    else:
        name, score = next(iter(trial_figures(record).items()))
        parts = [f"Trial {record.trial}", f"{name} {decimal(score)}"]
    entry = record.table_entry
    if entry is not None:
        parts.append(f"{decimal(entry.test)} % in the table")
        parts.append(f"rank {whole(entry.rank)} of {whole(entry.count)}, regret {decimal(entry.regret)}")
    alarm = record.health.alarm if isinstance(record, EpochRecord) and record.health else None
    return ": ".join([parts[0], "; ".join(parts[1:])]) + (f". The monitor warned: {alarm}." if alarm else ".")
