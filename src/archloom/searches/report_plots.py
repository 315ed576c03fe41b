"""Plots of a search as SVG text, to stand inside a page. Every function returns '' where there is nothing to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from archloom.reports.figures import MUTED, PALETTE, draw_line, grid, legend_above, legend_text, svg, whole_steps
from archloom.reports.history import (
    History,
    changes,
    find,
    has_standing,
    known,
    last_record_with,
    metric_names,
    number,
    positions,
    series,
)
from archloom.reports.markup import printable, shortened
from archloom.searches.report_draws import SHOWN_WITH_DRAWS
from archloom.spaces.base import NONE, Decision

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 28  # the edges of a DARTS search; above it, one row of colour per decision
MOST_OTHER_METRICS = 6
MOST_ROW_NAMES = 24

TRAIN, VALID = PALETTE[0], PALETTE[1]


# --- what happened to the metrics


def learning_curves(history: History) -> str:
    """A panel for losses, one for accuracies, and a small one for every other metric."""
    names = metric_names(history)
    losses = [name for name in names if name.endswith("loss")]
    accuracies = [name for name in names if name.endswith("accuracy")]
    others = [name for name in names if name not in (*losses, *accuracies, *SHOWN_WITH_DRAWS)][:MOST_OTHER_METRICS]
    panels = [(title, group) for title, group in (("loss", losses), ("accuracy, %", accuracies)) if group]
    panels += [(name.replace("_", " "), [name]) for name in others]
    if not panels:
        return ""

    def draw(figure: Figure) -> None:
        for axes, (title, group) in zip(grid(figure, len(panels), columns=2), panels, strict=False):
            _draw_metrics(axes, history, title, group)

    return svg(draw, height=2.5 * math.ceil(len(panels) / 2), label="Learning curves: " + ", ".join(names))


def _draw_metrics(axes: Axes, history: History, title: str, names: Sequence[str]) -> None:
    scale = 100.0 if title.endswith("%") else 1.0
    for index, name in enumerate(names):
        values = [scale * value for value in series(history, "metrics", name)]
        colour = TRAIN if name.startswith("train") else VALID if name.startswith("valid") else PALETTE[2 + index % 8]
        draw_line(axes, history, values, colour=colour, label=name.replace("_", " "))
    axes.set_title(printable(title), loc="left", fontweight="bold")
    axes.set_xlabel("epoch")
    if len(names) > 1:
        axes.legend(loc="best")


def trial_scores(history: History) -> str:
    """The score of every trial of a black-box search, and the best so far."""
    scores, best = series(history, "score"), series(history, "best")
    if not known(scores) and not known(best):
        return ""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.plot(positions(history), scores, "o", color=MUTED, markersize=3.5, label="score of the trial")
        axes.step(positions(history), best, where="post", color=PALETTE[0], label="best so far")
        axes.set_xlabel("trial")
        axes.set_ylabel("score")
        legend_above(axes)
        whole_steps(axes)

    return svg(draw, height=3.2, label="Score of every trial and the best so far")


# --- how steady the answer was


def stability_curve(history: History) -> str:
    """How good the architecture was that the search would have returned after every epoch."""
    tabular = has_standing(history)
    values = series(history, "standing", "test") if tabular else _percent(series(history, "derived_accuracy"))
    if not known(values):
        return ""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        colour = PALETTE[0] if tabular else PALETTE[2]
        draw_line(axes, history, values, colour=colour, label="the architecture derived after each epoch")
        marks = [value if changed else math.nan for value, changed in zip(values, changes(history), strict=True)]
        if known(marks):
            label = "it differs from the one before"
            axes.plot(positions(history), marks, "o", color="white", markeredgecolor=colour, markersize=6, label=label)
        if tabular and known(best := _table_best(history)):
            top = max(known(best))
            axes.axhline(top, color="#111827", linestyle="--", linewidth=1.0, label=f"best of the table: {top:.2f}")
        axes.set_xlabel("epoch")
        axes.set_ylabel("test accuracy in the table, %" if tabular else "accuracy with shared weights, %")
        axes.margins(y=0.12)
        legend_above(axes)

    return svg(draw, height=3.3, label="Accuracy of the derived architecture after every epoch")


def _table_best(history: History) -> list[float]:
    """The best score of the table, as every record implies it: what was reached plus what was missed."""
    reached, missed = series(history, "standing", "test"), series(history, "standing", "regret")
    return [score + regret for score, regret in zip(reached, missed, strict=True)]


def _percent(values: Sequence[float]) -> list[float]:
    return [100.0 * value for value in values]


# --- how the choices settled


def probabilities(history: History, decisions: Sequence[Decision]) -> str:
    """The probability of every option over time: a small panel per decision or, for many, their entropy as colours."""
    scored = [record for record in history if find(record, "scores") is not None]
    table = {decision.name: _option_series(scored, decision) for decision in decisions}
    decisions = [decision for decision in decisions if any(known(values) for values in table[decision.name])]
    if not decisions:
        return ""
    if len(decisions) > MOST_PANELS:
        return _entropy_map(scored, decisions, [_entropies(table[decision.name]) for decision in decisions])
    return _small_panels(scored, decisions, [table[decision.name] for decision in decisions])


def _option_series(history: History, decision: Decision) -> list[list[float]]:
    """Per option, one number per record; a gap where a record speaks of another number of options."""
    missing = [math.nan] * len(decision.options)
    rows = [_score_row(find(record, "scores", decision.name), missing) for record in history]
    return [[row[option] for row in rows] for option in range(len(decision.options))]


def _score_row(values: object, missing: list[float]) -> list[float]:
    if isinstance(values, list | tuple) and len(values) == len(missing):
        return [number(value) for value in values]
    return missing


def _small_panels(history: History, decisions: Sequence[Decision], table: Sequence[list[list[float]]]) -> str:
    columns = len(decisions) if len(decisions) <= 3 else 3 if len(decisions) <= 9 else 7
    rows = math.ceil(len(decisions) / columns)
    options = list(dict.fromkeys(option for decision in decisions for option in decision.options))
    colours = _option_colours(options)
    last = last_record_with(history, "architecture")
    flat = [value for values in table for line in values for value in known(line)]

    def draw(figure: Figure) -> None:
        panels = grid(figure, len(decisions), columns=columns, shared=True)
        for place, (axes, decision, values) in enumerate(zip(panels, decisions, table, strict=False)):
            for option, line in zip(decision.options, values, strict=True):
                draw_line(axes, history, line, colour=colours[option], label=option)
            _name_panel(axes, decision, find(last, "architecture", decision.name), colours)
            if place >= len(decisions) - columns:
                axes.set_xlabel("epoch")
        if min(flat) >= 0 and max(flat) <= 1:
            panels[0].set_ylim(-0.03, 1.03)
        _shared_legend(figure, options, colours)

    height = rows * (1.75 if columns < 7 else 1.3) + 0.5
    return svg(draw, height=height, label=f"Probability of every option for {len(decisions)} decisions over epochs")


def _name_panel(axes: Axes, decision: Decision, chosen: object, colours: dict[str, str]) -> None:
    """The decision's name, and below it the option taken in the end, in that option's colour."""
    axes.set_title(printable(shortened(decision.name, longest=26)), loc="left", fontsize=7.0, pad=12)
    if isinstance(chosen, str):
        colour = colours.get(chosen, MUTED)
        text = printable(shortened(chosen, longest=26))
        axes.annotate(text, (0, 1), xytext=(0, 3), xycoords="axes fraction", textcoords="offset points", color=colour,
                      fontsize=6.5, fontweight="bold")  # fmt: skip


def _option_colours(options: Sequence[str]) -> dict[str, str]:
    """A colour per option; `none` stands back."""
    real = [option for option in options if option != NONE]
    return {NONE: MUTED, **{option: PALETTE[index % len(PALETTE)] for index, option in enumerate(real)}}


def _shared_legend(figure: Figure, options: Sequence[str], colours: dict[str, str]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=colours[option], linewidth=2.5) for option in options]
    names = [legend_text(option) for option in options]
    figure.legend(handles, names, loc="outside upper center", ncols=min(len(options), 8))


def _entropy_map(history: History, decisions: Sequence[Decision], entropies: Sequence[list[float]]) -> str:
    step = math.ceil(len(decisions) / MOST_ROW_NAMES)
    rows = range(0, len(decisions), step)
    epochs = positions(history)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        extent = (epochs[0] - 0.5, max(epochs[-1], epochs[0]) + 0.5, len(decisions) - 0.5, -0.5)
        image = axes.imshow(
            entropies, aspect="auto", interpolation="nearest", cmap="viridis", vmin=0, vmax=1, extent=extent
        )
        axes.set_yticks(list(rows), [printable(shortened(decisions[row].name, longest=26)) for row in rows])
        axes.set_xlabel("epoch")
        axes.grid(visible=False)
        whole_steps(axes)
        figure.colorbar(image, ax=axes, label="entropy: 0 decided, 1 undecided", pad=0.02)

    label = f"Entropy of {len(decisions)} decisions over epochs"
    return svg(draw, height=min(0.022 * len(decisions) + 1.6, 8.0), label=label)


def _entropies(values: Sequence[Sequence[float]]) -> list[float]:
    """Per record, how undecided the options are: 0 where one has it all, 1 where all are equal."""
    return [_entropy(row) for row in zip(*values, strict=True)]


def _entropy(row: Sequence[float]) -> float:
    total = sum(row)
    if math.isnan(total) or min(row) < 0 or total <= 0:
        return math.nan
    shares = [value / total for value in row if value > 0]
    return -sum(share * math.log(share) for share in shares) / math.log(max(len(row), 2))
