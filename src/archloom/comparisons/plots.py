"""Plots of a comparison: every seed as a dot, and how one-shot searches developed."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from archloom.comparisons.entries import EntryResult
from archloom.comparisons.spec import Published
from archloom.reports.figures import MUTED, colour_of, grid, make_figure, svg, whole_steps
from archloom.reports.markup import make_printable, shorten
from archloom.reports.tables import Table, number_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UPPER_PART = 4.0  # points below the best that a second panel shows if some seeds are far below
FAR_BELOW = 3 * UPPER_PART
CURVES_IN_A_ROW = 4


@dataclass(frozen=True)
class StripPlot:
    """A line per entry with a dot per seed and a bar at the mean; published figures are diamonds."""

    entries: Sequence[EntryResult]  # with a value
    marks: Mapping[str, float]  # published figures, by name
    colours: Mapping[str, str]

    @classmethod
    def of(cls, entries: Sequence[EntryResult], published: Sequence[Published], dataset: str) -> StripPlot | None:
        """Return the plot of a comparison, or None if no search has finished."""
        known = [entry for entry in entries if entry.values]
        marks = {row.name: row.figures[dataset] for row in published if dataset in row.figures}
        return cls(known, marks, _choose_colours(entries)) if known else None

    def to_svg(self) -> str:
        """Return the plot as SVG, for a page."""
        return svg(self._draw, height=self._height, label="Every seed of every entry")

    def to_figure(self) -> Figure:
        """Return the plot as a matplotlib figure, for a file or a notebook."""
        figure = make_figure(self._draw, height=self._height)
        figure.set_facecolor("white")
        return figure

    @property
    def _names(self) -> list[str]:
        """Return the lines from top to bottom; a published figure shares the line of the entry of its name."""
        return list(dict.fromkeys([*(entry.name for entry in self.entries), *map(self._line_of, self.marks)]))

    def _line_of(self, published: str) -> str:
        same = [entry.name for entry in self.entries if entry.name.casefold() == published.casefold()]
        return same[0] if same else f"{published} (published)"

    @property
    def _height(self) -> float:
        return 0.34 * len(self._names) + 0.9

    def _draw(self, figure: Figure) -> None:
        names, values = self._names, [value for entry in self.entries for value in entry.values]
        in_percent = all(entry.measure.unit == "%" for entry in self.entries)
        closer = in_percent and max(values) - min(values) > FAR_BELOW
        panels = figure.subplots(1, 2 if closer else 1, squeeze=False, sharey=True)[0]
        for axes in panels:
            self._draw_panel(axes, names)
        panels[0].set_yticks(range(len(names)), [make_printable(shorten(name, longest=28)) for name in names])
        panels[0].set_ylim(len(names) - 0.5, -0.5)
        panels[0].set_xlabel(" / ".join(dict.fromkeys(map(_label_values, self.entries))))
        if closer:
            panels[1].set_xlim(max(values) - UPPER_PART, max(values) + 0.03 * UPPER_PART)
            panels[1].set_xlabel(f"the same, the upper {UPPER_PART:g} points")

    def _draw_panel(self, axes: Axes, names: Sequence[str]) -> None:
        rng = random.Random(0)  # the distance of a dot from its line means nothing and is the same every time
        for entry in self.entries:
            place = names.index(entry.name)
            heights = [place + (rng.random() - 0.5) * 0.5 for _ in entry.values]
            alpha = 0.75 if len(entry.values) <= 20 else 0.25
            axes.plot(entry.values, heights, "o", color=self.colours[entry.name], markersize=3.4, alpha=alpha, mew=0)
            centre = statistics.mean(entry.values)
            axes.plot([centre, centre], [place - 0.36, place + 0.36], color="#111827", linewidth=1.6)
        for name, value in self.marks.items():
            axes.plot([value], [names.index(self._line_of(name))], "D", color="white", mec="#111827", markersize=4.5)
        axes.grid(visible=False, axis="y")


def _label_values(entry: EntryResult) -> str:
    """Return what the values of an entry are, with their unit; where lower ones are better, say so."""
    unit = f", {entry.measure.unit}" if entry.measure.unit else ""
    return f"{entry.metric}{unit}{'' if entry.measure.higher_is_better else ' (lower is better)'}"


def draw_curves(entries: Sequence[EntryResult]) -> str:
    """Return, per one-shot entry, the accuracy of its derived architecture over epochs: mean and extremes of seeds."""
    all_curves = {entry.name: [result.curve for result in entry.results if result.curve] for entry in entries}
    curves = {name: found for name, found in all_curves.items() if found}
    if not curves:
        return ""
    columns, colours = min(CURVES_IN_A_ROW, len(curves)), _choose_colours(entries)

    def draw(figure: Figure) -> None:
        panels = grid(figure, len(curves), columns=columns, shared=True)
        for place, (axes, (name, found)) in enumerate(zip(panels, curves.items(), strict=True)):
            _draw_mean_and_extremes(axes, found, colour=colours[name])
            axes.set_title(make_printable(shorten(f"{name} ({len(found)})", longest=30)), loc="left")
            if place >= len(curves) - columns:
                axes.set_xlabel("epoch")
                axes.tick_params(labelbottom=True)
            if place % columns == 0:
                axes.set_ylabel("test accuracy, %")

    height = 2.1 * math.ceil(len(curves) / columns) + 0.3
    return svg(draw, height=height, label="Accuracy of what each search would have returned after every epoch")


def _draw_mean_and_extremes(axes: Axes, curves: Sequence[Sequence[float]], *, colour: str) -> None:
    length = min(map(len, curves))
    epochs, at = range(1, length + 1), list(zip(*(curve[:length] for curve in curves), strict=True))
    for curve in curves:
        axes.plot(range(1, len(curve) + 1), curve, color=MUTED, linewidth=0.6)  # early stopping makes lengths differ
    axes.fill_between(epochs, list(map(min, at)), list(map(max, at)), color=colour, alpha=0.15, linewidth=0)
    axes.plot(epochs, [statistics.mean(values) for values in at], color=colour, linewidth=2)
    whole_steps(axes)


def _choose_colours(entries: Sequence[EntryResult]) -> dict[str, str]:
    """Return the colour of every entry, the same in all plots."""
    return {entry.name: colour_of(place) for place, entry in enumerate(entries)}


# --- the numbers behind the plots


def tabulate_seeds(entries: Sequence[EntryResult]) -> Table:
    """Return a row per finished search that has a value."""
    rows = [
        (entry.name, found.seed, found.value, found.regret, found.seconds, found.text)
        for entry in entries
        for found in entry.results
        if found.value is not None
    ]
    return number_table(("entry", "seed", "value", "regret", "seconds", "architecture"), rows)


def tabulate_curves(entries: Sequence[EntryResult]) -> Table:
    """Return a row per entry, seed and epoch."""
    rows = [
        (entry.name, found.seed, epoch, value)
        for entry in entries
        for found in entry.results
        for epoch, value in enumerate(found.curve, start=1)
    ]
    return number_table(("entry", "seed", "epoch", "test accuracy, %"), rows)
