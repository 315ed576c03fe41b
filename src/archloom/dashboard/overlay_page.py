"""Several runs on one page: their curves in the same figures, the settings that differ, and their cells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from archloom.core.settings import flatten
from archloom.dashboard.page import Page
from archloom.dashboard.views import RetrainView, SearchView
from archloom.reports.cells import draw_cells
from archloom.reports.curves import Series, drop_unknown
from archloom.reports.figures import colour_of, dash_of, draw_line, grid, legend_text, svg
from archloom.reports.markup import make_printable, shorten
from archloom.reports.pictures import Picture
from archloom.reports.tables import Table, decimal, number_table
from archloom.retrainings.report_curves import list_metrics
from archloom.searches.history import chosen_so_far, epochs_of, metric_series, trial_figures, trials_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_RUNS = 24  # of one page: four dashes of six colours
MOST_PANELS = 12

View = SearchView | RetrainView


@dataclass(frozen=True)
class RunCurves:
    """The curves of one run, by the name of the metric."""

    key: str
    positions: Sequence[float]
    series: Series


def make_overlay_page(views: Sequence[View]) -> Page:
    """Return a page with all of these runs."""
    curves = [read_curves(view) for view in views]
    context = {
        "key": "",
        "title": f"{len(views)} runs compared",
        "keys": [view.key for view in views],
        "places": [(colour_of(place), dash_of(place)) for place in range(len(views))],
        "results": [_describe_result(view) for view in views],
        "curves": Picture(
            "curves",
            "Curves",
            lambda: overlay_curves(curves),
            lambda: tabulate_overlay(curves),
            "One panel for every metric, one line for every run; trials and epochs share the axis.",
        ),
        "differences": tabulate_differences({view.key: dict(view.config) for view in views}),
        "cells": [picture for view in views if (picture := _picture_cells(view, len(views)))],
    }
    return Page("overlay.html", context, "+".join(view.version for view in views))


def read_curves(view: View) -> RunCurves:
    """Return every metric of a run; accuracies are in percent."""
    if isinstance(view, RetrainView):
        return RunCurves(view.key, [record.epoch + 1 for record in view.history], list_metrics(view.history))
    trials, epochs = trials_of(view.history), epochs_of(view.history)
    entries = [record.table_entry for record in view.history]
    known = {
        "table test accuracy": [math.nan if entry is None else entry.test for entry in entries],
        "regret": [math.nan if entry is None else entry.regret for entry in entries],
    }
    if trials:
        figures = [trial_figures(one) for one in trials]
        own = {name: [one[name] for one in figures] for name in figures[0]}
        return _keep_known(view.key, [one.trial for one in trials], {**own, **known})
    metrics = {
        name: [100 * value for value in values] if name.endswith("accuracy") else values
        for name, values in metric_series(epochs).items()
    }
    derived: dict[str, list[float]] = {}
    if epochs:
        metric = epochs[0].measure
        derived[f"derived {metric.name}"] = [metric.to_value(one.derived_score) for one in epochs]
    return _keep_known(view.key, [one.epoch + 1 for one in epochs], {**known, **derived, **metrics})


def _keep_known(key: str, positions: Sequence[float], series: Series) -> RunCurves:
    return RunCurves(key, positions, {name: values for name, values in series.items() if drop_unknown(values)})


def _shared_metrics(curves: Sequence[RunCurves]) -> list[str]:
    """Return the metrics to draw: those of most runs first."""
    counts: dict[str, int] = {}
    for one in curves:
        for name in one.series:
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: -counts[name])[:MOST_PANELS]


def overlay_curves(curves: Sequence[RunCurves]) -> str:
    """Draw a panel per metric and a line per run."""
    names = _shared_metrics(curves)
    if not names:
        return ""

    def draw(figure: Figure) -> None:
        for axes, name in zip(grid(figure, len(names), columns=min(2, len(names))), names, strict=True):
            for place, one in enumerate(curves):
                if name in one.series:
                    values = one.series[name]
                    draw_line(axes, one.positions, values, colour=colour_of(place), label="", dash=dash_of(place))
            unit = ", %" if "accuracy" in name else ""
            axes.set_title(make_printable(name.replace("_", " ")) + unit, loc="left", fontweight="bold")
        _draw_legend(figure, curves)

    height = 2.3 * math.ceil(len(names) / 2) + 0.24 * math.ceil(len(curves) / 2) + 0.2
    return svg(draw, height=height, label=f"Curves of {len(curves)} runs: " + ", ".join(names))


def _draw_legend(figure: Figure, curves: Sequence[RunCurves]) -> None:
    from matplotlib.lines import Line2D  # late: matplotlib is slow to import

    handles = [Line2D([], [], color=colour_of(n), linestyle=dash_of(n), linewidth=2.5) for n in range(len(curves))]
    names = [legend_text(shorten(one.key, longest=60)) for one in curves]
    figure.legend(handles, names, loc="outside upper left", ncols=2)


def tabulate_overlay(curves: Sequence[RunCurves]) -> Table:
    """Return a row per run, metric and record."""
    rows = [
        (one.key, name, position, value)
        for one in curves
        for name, values in one.series.items()
        for position, value in zip(one.positions, values, strict=True)
    ]
    return number_table(("run", "metric", "epoch or trial", "value"), rows)


def tabulate_differences(configs: Mapping[str, Mapping[str, object]]) -> Table:
    """Return the settings that are not the same in all runs, a column per run."""
    flat = {key: flatten(config) for key, config in configs.items()}
    names = dict.fromkeys(name for settings in flat.values() for name in settings)
    rows = []
    for name in names:
        values = [_write(settings.get(name)) for settings in flat.values()]
        if len(set(values)) > 1:
            rows.append((name, *values))
    return Table("", tuple(rows), ("setting", *configs))


def _write(value: object) -> str:
    return "" if value is None else ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _describe_result(view: View) -> tuple[str, ...]:
    """Return kind, score and verdict of a run; the score is that of the table where one has it."""
    if isinstance(view, RetrainView):
        return ("retraining", "" if view.result is None else view.result.score_text, "")
    if view.result is None:
        return ("search", "", "")
    entry, metric = view.result.table_entry, view.result.metric
    shared = "" if view.result.shared_score is None else metric.format(view.result.shared_score)
    score = shared if entry is None else f"{decimal(entry.test)} %"
    return ("search", score if metric.unit or not score else f"{metric.name} {score}", view.result.verdict)


def _picture_cells(view: View, count: int) -> Picture | None:
    """Return the cells that a run found or trains."""
    if isinstance(view, RetrainView):
        architecture = dict(view.config.get("architecture", {}))
    else:
        chosen = view.result or chosen_so_far(view.history)
        architecture = {} if chosen is None else dict(chosen.architecture)
    graphs = view.graphs(architecture)
    if not graphs:
        return None
    rows = tuple(architecture.items())
    name = f"cells-{view.key}".replace("/", "-")
    return Picture(
        name, view.key, lambda: draw_cells(graphs[:2]), lambda: Table("", rows, ("decision", "option")), view.key
    )
