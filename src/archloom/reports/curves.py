"""Curves over epochs that searches and retrainings share: learning curves, and panels of several figures each."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from archloom.reports.figures import PALETTE, colour_of, dash_of, draw_line, grid, svg
from archloom.reports.markup import make_printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_OTHER_METRICS = 6
TRAIN, VALID = PALETTE[0], PALETTE[1]
ALARM = PALETTE[3]

Series = Mapping[str, Sequence[float]]
"""Figures by name, one number per record; NaN where a record has none."""


def drop_unknown(values: Sequence[float]) -> list[float]:
    """Return the values that are numbers."""
    return [value for value in values if not math.isnan(value)]


# --- learning curves


def learning_curves(epochs: Sequence[float], metrics: Series, *, left_out: Collection[str] = ()) -> str:
    """Draw a panel for losses, one for accuracies (from 0 to 1) or perplexities, and a small one for the others."""
    losses = [name for name in metrics if name.endswith("loss")]
    accuracies = [name for name in metrics if name.endswith("accuracy")]
    perplexities = [name for name in metrics if name.endswith("perplexity")]
    named = (("loss", losses), ("accuracy, %", accuracies), ("perplexity", perplexities))
    shown = {*losses, *accuracies, *perplexities, *left_out}
    others = [name for name in metrics if name not in shown][:MOST_OTHER_METRICS]
    panels = [(title, group) for title, group in named if group]
    panels += [(name.replace("_", " "), [name]) for name in others]
    if not panels:
        return ""

    def draw(figure: Figure) -> None:
        for axes, (title, group) in zip(grid(figure, len(panels), columns=2), panels, strict=False):
            _draw_metrics(axes, epochs, title, {name: metrics[name] for name in group})

    return svg(draw, height=2.5 * math.ceil(len(panels) / 2), label="Learning curves: " + ", ".join(metrics))


def _draw_metrics(axes: Axes, epochs: Sequence[float], title: str, metrics: Series) -> None:
    scale = 100.0 if title.endswith("%") else 1.0
    for index, (name, values) in enumerate(metrics.items()):
        colour = TRAIN if name.startswith("train") else VALID if name.startswith("valid") else colour_of(2 + index)
        scaled = [scale * value for value in values]
        draw_line(axes, epochs, scaled, colour=colour, label=name.replace("_", " "))
    axes.set_title(make_printable(title), loc="left", fontweight="bold")
    axes.set_xlabel("epoch")
    if len(metrics) > 1:
        axes.legend(loc="best")


# --- panels


@dataclass(frozen=True)
class Panel:
    """Figures that are drawn together, each with its name in the legend."""

    title: str
    lines: Mapping[str, str]
    logarithmic: bool = False
    if_constant: bool = True  # whether it is drawn where nothing changes

    def has_content(self, series: Series) -> bool:
        """Return whether a line of the panel has values to show."""
        different = [len(set(drop_unknown(self.values(series, name)))) for name in self.lines]
        return max(different) > (0 if self.if_constant else 1)

    def values(self, series: Series, name: str) -> list[float]:
        """Return one number per record; a logarithmic axis has no place for zero, which is noise that is off."""
        values = list(series.get(name, ()))
        return [value if value > 0 else math.nan for value in values] if self.logarithmic else values


def panel_curves(
    epochs: Sequence[float], series: Series, panels: Sequence[Panel], *, label: str, alarms: Sequence[float] = ()
) -> str:
    """Draw the panels that have content, three in a row, with a line at every alarm; return '' where none has any."""
    shown = [panel for panel in panels if panel.has_content(series)]
    if not shown:
        return ""

    def draw(figure: Figure) -> None:
        for axes, panel in zip(grid(figure, len(shown), columns=min(3, max(2, len(shown)))), shown, strict=True):
            _draw_panel(axes, epochs, series, panel)
            for alarm in alarms:
                axes.axvline(alarm, color=ALARM, linestyle=":", linewidth=1.2)

    return svg(draw, height=1.85 * math.ceil(len(shown) / 3), label=label)


def _draw_panel(axes: Axes, epochs: Sequence[float], series: Series, panel: Panel) -> None:
    for place, (name, label) in enumerate(panel.lines.items()):
        values = panel.values(series, name)
        if drop_unknown(values):
            draw_line(axes, epochs, values, colour=colour_of(place), label=label, dash=dash_of(place))
    if panel.logarithmic:
        _set_logarithmic(axes)
    else:
        axes.ticklabel_format(axis="y", useOffset=False)
    axes.set_title(panel.title, loc="left", fontweight="bold")
    axes.set_xlabel("epoch")
    axes.set_xlim(min(epochs) - 0.3, max(epochs) + 0.3)  # the same in all panels: logits may begin after the weights
    axes.legend(loc="best", fontsize=6.5, frameon=True, framealpha=0.7, edgecolor="none")


def _set_logarithmic(axes: Axes) -> None:
    """Set a logarithmic axis with plain numbers: powers would be written in a notation that pages do not read."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # late: matplotlib is slow to import

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    steps = (1.0,) if high > 50 * low else (1.0, 2.0, 5.0) if high > 2.5 * low else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
    axes.yaxis.set_major_locator(LogLocator(subs=steps, numticks=8))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
