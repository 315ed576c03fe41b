"""The plot of a pipeline: every retraining as a dot, in a line for each search."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from archloom.core.metrics import Metric
from archloom.reports.figures import colour_of, make_figure, svg
from archloom.reports.tables import Table, number_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Tests = Mapping[int, Sequence[float]]
"""Test figures by the seed of the search."""


def draw_models(tests: Tests, metric: Metric) -> str:
    """Return the plot as SVG; nothing if there is no model."""
    label = f"Test {metric.name} of every retraining, by search"
    return svg(partial(_draw, tests, metric), height=0.34 * len(tests) + 0.8, label=label) if tests else ""


def plot_models(tests: Tests, metric: Metric) -> Figure:
    """Return the plot as a matplotlib figure."""
    figure = make_figure(partial(_draw, tests, metric), height=0.34 * len(tests) + 0.8)
    figure.set_facecolor("white")
    return figure


def _draw(tests: Tests, metric: Metric, figure: Figure) -> None:
    axes = figure.subplots()
    for row, values in enumerate(tests.values()):
        colour, centre = colour_of(row), statistics.mean(values)
        axes.plot(values, [row] * len(values), "o", color=colour, markersize=5, alpha=0.7, mew=0)
        axes.plot([centre, centre], [row - 0.32, row + 0.32], color="#111827", linewidth=1.6)
    axes.set_yticks(range(len(tests)), [f"search {seed}" for seed in tests])
    axes.set_ylim(len(tests) - 0.5, -0.5)
    axes.margins(x=0.1)
    axes.set_xlabel(f"test {metric.label}")
    axes.grid(visible=False, axis="y")


def tabulate_models(tests: Tests, metric: Metric) -> Table:
    """Return the numbers of the plot: a row per retraining."""
    rows = [(search, value) for search, values in tests.items() for value in values]
    return number_table(("search", f"test {metric.label}"), rows)
