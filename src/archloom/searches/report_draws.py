"""Plots of draws from a posterior: which option is how probably the best, and how the draws themselves went."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from archloom.reports.figures import MUTED, PALETTE, draw_line, grid, svg
from archloom.reports.history import History, known, positions, series
from archloom.reports.markup import printable, shortened
from archloom.searches.report_posterior import Belief

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 40  # decisions of a map; of more, those that are least sure
INK, PAPER = "#111827", "#ffffff"
DARK = 0.85  # cells beyond it are written on in white
DARKEST = 1.35  # where the colours end: that of 1 must leave a frame in ink to be seen
ROW_HEIGHT = 0.27  # inches


# --- which option is the best


def best_map(beliefs: Sequence[Belief], derived: Mapping[str, str]) -> str:
    """Decisions by options: how often each was the best. Credible sets are framed, what was derived has a diamond."""
    shown = least_sure(beliefs)
    if not shown:
        return ""
    options = list(dict.fromkeys(option for belief in shown for option in belief.best))

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        _draw_cells(axes, shown, options)
        for row, belief in enumerate(shown):
            for column, option in enumerate(options):
                _mark_cell(axes, (column, row), belief, option, chosen=derived.get(belief.decision) == option)
        _name_cells(axes, shown, options)

    label = f"Probability of every option to be the best one, for {len(shown)} decisions"
    return svg(draw, height=ROW_HEIGHT * len(shown) + 0.7, label=label)


def least_sure(beliefs: Sequence[Belief]) -> list[Belief]:
    """All of them, or as many as a map can show: the least decided ones, in their own order."""
    by_doubt = sorted(beliefs, key=lambda belief: (-len(belief.credible), belief.probability))
    kept = {belief.decision for belief in by_doubt[:MOST_ROWS]}
    return [belief for belief in beliefs if belief.decision in kept]


def _draw_cells(axes: Axes, beliefs: Sequence[Belief], options: Sequence[str]) -> None:
    table = [[belief.best.get(option, math.nan) for option in options] for belief in beliefs]
    edges = [place - 0.5 for place in range(len(options) + 1)], [place - 0.5 for place in range(len(beliefs) + 1)]
    axes.pcolormesh(*edges, table, cmap="Blues", vmin=0, vmax=DARKEST, edgecolors=PAPER, linewidth=1.0)
    axes.set_ylim(len(beliefs) - 0.5, -0.5)


def _mark_cell(axes: Axes, place: tuple[int, int], belief: Belief, option: str, *, chosen: bool) -> None:
    """The percentage in a cell, a frame around those of the credible set, and a diamond where the result is."""
    from matplotlib.patches import Rectangle

    probability = belief.best.get(option)
    if probability is None:  # a decision without this option
        return
    column, row = place
    credible = option in belief.credible
    ink = PAPER if probability > DARK else INK if credible or chosen else MUTED
    weight = "bold" if credible else "normal"
    axes.text(column, row, _written(probability), ha="center", va="center", color=ink, fontweight=weight, fontsize=7.5)
    if credible:
        axes.add_patch(Rectangle((column - 0.47, row - 0.41), 0.94, 0.82, fill=False, edgecolor=INK, linewidth=1.3))
    if chosen:
        axes.plot([column - 0.32], [row], marker="D", markersize=4.0, color=ink)


def _written(probability: float) -> str:
    """Whole percent, and never 0 or 100 for what is neither."""
    return "<1" if 0 < probability < 0.005 else ">99" if 0.995 <= probability < 1 else f"{100 * probability:.0f}"


def _name_cells(axes: Axes, beliefs: Sequence[Belief], options: Sequence[str]) -> None:
    longest = 100 // len(options) + 2
    axes.set_xticks(range(len(options)), [printable(shortened(option, longest=longest)) for option in options])
    axes.set_yticks(range(len(beliefs)), [printable(shortened(belief.decision, longest=26)) for belief in beliefs])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


# --- how the draws went


@dataclass(frozen=True)
class Panel:
    """Metrics that are drawn together, each with its name in the legend."""

    title: str
    lines: Mapping[str, str]
    logarithmic: bool = False
    if_constant: bool = True  # whether it says anything where nothing changes
    part: str = "metrics"  # of a record


MOVES = "length of a move"  # what only draws have
_PANELS = (
    Panel(f"logits: {MOVES}", {"a_step_norm": "mean step", "a_noise_norm": "noise"}, logarithmic=True),
    Panel(f"weights: {MOVES}", {"w_step_norm": "mean step", "w_noise_norm": "noise"}, logarithmic=True),
    Panel(
        "inverse curvature",
        {
            "a_smallest": "logits, smallest",
            "a_largest": "logits, largest",
            "w_smallest": "weights, smallest",
            "w_largest": "weights, largest",
        },
        logarithmic=True,
    ),
    Panel(
        "share of the draws",
        {
            "a_damped": "logits, damped",
            "a_clipped": "logits, clipped",
            "a_skipped": "logits, skipped",
            "a_failed": "logits, failed",
            "w_skipped": "weights, skipped",
        },
    ),
    Panel("weight tensors clipped in a draw", {"w_clipped": "mean step", "w_noise_clipped": "noise"}),
    Panel(
        "batch noise by drawn noise",
        {"a_batch_noise_ratio": "logits", "w_batch_noise_ratio": "weights"},
        logarithmic=True,
    ),
    Panel("entropy of a decision", {"entropy": "mean", "entropy_least": "least"}),
    Panel("share of skips", {"skip_share": "among the best options"}),
    Panel("decay (of the prior)", {"a_decay": "logits", "w_decay": "weights"}, logarithmic=True, if_constant=False),
)

SHOWN_WITH_DRAWS = frozenset(name for panel in _PANELS for name in panel.lines)


def draw_curves(history: History) -> str:
    """How large the draws were, how many had to be held back, and where the logits went; nothing of other searches."""
    if not any(_says_something(history, panel) for panel in _PANELS if panel.title.endswith(MOVES)):
        return ""
    return panel_curves(history, _PANELS, label="How the draws went over epochs")


def panel_curves(history: History, panels: Sequence[Panel], *, label: str) -> str:
    """Those panels that have something to say, three in a row; nothing where none has."""
    shown = [panel for panel in panels if _says_something(history, panel)]
    if not shown:
        return ""

    def draw(figure: Figure) -> None:
        for axes, panel in zip(grid(figure, len(shown), columns=3), shown, strict=True):
            _draw_panel(axes, history, panel)

    return svg(draw, height=1.85 * math.ceil(len(shown) / 3), label=label)


def _says_something(history: History, panel: Panel) -> bool:
    different = [len(set(known(_values(history, name, panel)))) for name in panel.lines]
    return max(different) > (0 if panel.if_constant else 1)


def _draw_panel(axes: Axes, history: History, panel: Panel) -> None:
    for place, (name, label) in enumerate(panel.lines.items()):
        values = _values(history, name, panel)
        if known(values):
            draw_line(axes, history, values, colour=PALETTE[place], label=label)
    if panel.logarithmic:
        _logarithmic(axes)
    else:
        axes.ticklabel_format(axis="y", useOffset=False)
    axes.set_title(panel.title, loc="left", fontweight="bold")
    axes.set_xlabel("epoch")
    epochs = positions(history)
    axes.set_xlim(min(epochs) - 0.3, max(epochs) + 0.3)  # the same in all panels: logits may wait for the weights
    axes.legend(loc="best", fontsize=6.5, frameon=True, framealpha=0.7, edgecolor="none")


def _logarithmic(axes: Axes) -> None:
    """A logarithmic axis with plain numbers: powers would be written in a notation that pages do not read."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    steps = (1.0,) if high > 50 * low else (1.0, 2.0, 5.0) if high > 2.5 * low else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
    axes.yaxis.set_major_locator(LogLocator(subs=steps, numticks=8))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _values(history: History, name: str, panel: Panel) -> list[float]:
    """One number per record; a logarithmic axis has no place for zero, which is noise that is off."""
    values = series(history, panel.part, name)
    return [value if value > 0 else math.nan for value in values] if panel.logarithmic else values
