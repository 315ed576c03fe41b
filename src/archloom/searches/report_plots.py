"""Plots of a search as SVG text for a page. Every function returns '' where there is nothing to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from archloom.core.metrics import ACCURACY
from archloom.reports.curves import Panel, drop_unknown, panel_curves
from archloom.reports.figures import (
    MUTED,
    PALETTE,
    Dash,
    colour_of,
    dash_of,
    draw_line,
    grid,
    legend_above,
    legend_columns,
    legend_text,
    make_figure,
    svg,
    whole_steps,
)
from archloom.reports.markup import make_printable, shorten
from archloom.reports.tables import Table, number_table
from archloom.searches.history import epochs_of, find_changes, trial_figures, trials_of, unit_of
from archloom.searches.records import COST_METRIC, EpochRecord, SearchRecord, TrialRecord
from archloom.spaces.base import NONE, Decision

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 28  # the edges of a DARTS search; above it, one row of colour per decision
MOST_ROW_NAMES = 24
CURVE_HEIGHT, LEGEND_ROW = 3.3, 0.17  # inches
MOST_LEGEND_COLUMNS = 6
LEGEND_LINE, LEGEND_HANDLE = 1.5, 3.0  # points; letters: long enough for a whole dash and its dot


# --- the result


def result_curve(history: Sequence[SearchRecord]) -> str:
    """Draw how good the result was over time: the scores of trials, or the derived architecture after each epoch."""
    trials = trials_of(history)
    return trial_scores(trials) if trials else stability_curve(epochs_of(history))


def plot_history(history: Sequence[SearchRecord]) -> Figure:
    """Return the same as a matplotlib figure."""
    trials, epochs = trials_of(history), epochs_of(history)
    draw = partial(_draw_trials, trials) if trials else partial(_draw_stability, epochs)
    figure = make_figure(lambda figure: draw(figure.subplots()), height=CURVE_HEIGHT)
    figure.set_facecolor("white")
    return figure


def trial_scores(trials: Sequence[TrialRecord]) -> str:
    """Draw the score of every trial of a black-box search, and the best so far."""
    if not drop_unknown([record.score for record in trials]):
        return ""
    label = f"{_name_of_trials(trials).capitalize()} of every trial and the best so far"
    return svg(lambda figure: _draw_trials(trials, figure.subplots()), height=CURVE_HEIGHT, label=label)


def _draw_trials(trials: Sequence[TrialRecord], axes: Axes) -> None:
    numbers = [record.trial for record in trials]
    name = _name_of_trials(trials)
    scores, best = zip(*(trial_figures(record).values() for record in trials), strict=True)
    axes.plot(numbers, scores, "o", color=MUTED, markersize=3.5, label=f"{name} of the trial")
    axes.step(numbers, best, where="post", color=PALETTE[0], label="best so far")
    axes.set_xlabel("trial")
    axes.set_ylabel(name)
    legend_above(axes)
    whole_steps(axes)


def _name_of_trials(trials: Sequence[TrialRecord]) -> str:
    """Return what the scores of trials are called: a perplexity is one, and others are of several kinds."""
    return next(iter(trial_figures(trials[0])))


def stability_curve(epochs: Sequence[EpochRecord]) -> str:
    """Draw how good the architecture was that the search would have returned after every epoch."""
    if not drop_unknown(_list_derived_figures(epochs)):
        return ""
    label = f"{epochs[0].measure.name.capitalize()} of the derived architecture after every epoch"
    return svg(lambda figure: _draw_stability(epochs, figure.subplots()), height=CURVE_HEIGHT, label=label)


def has_table(epochs: Sequence[EpochRecord]) -> bool:
    """Return whether a table has an entry of a derived architecture, at least once."""
    return any(record.table_entry is not None for record in epochs)


def _list_derived_figures(epochs: Sequence[EpochRecord]) -> list[float]:
    """Return accuracies in percent: test accuracies of the table if there is one, else with the shared weights."""
    if not has_table(epochs):
        return [record.measure.to_value(record.derived_score) for record in epochs]
    return [math.nan if record.table_entry is None else record.table_entry.test for record in epochs]


def _draw_stability(epochs: Sequence[EpochRecord], axes: Axes) -> None:
    numbers, values, tabular = [record.epoch + 1 for record in epochs], _list_derived_figures(epochs), has_table(epochs)
    colour = PALETTE[0] if tabular else PALETTE[2]
    draw_line(axes, numbers, values, colour=colour, label="the architecture derived after each epoch")
    marks = [value if changed else math.nan for value, changed in zip(values, find_changes(epochs), strict=True)]
    if drop_unknown(marks):
        label = "it differs from the one before"
        axes.plot(numbers, marks, "o", color="white", markeredgecolor=colour, markersize=6, label=label)
    entries = [record.table_entry for record in epochs if record.table_entry is not None]
    if entries:  # each entry implies the best of the table: what was reached plus what was missed
        top = max(entry.test + entry.regret for entry in entries)
        axes.axhline(top, color="#111827", linestyle="--", linewidth=1.0, label=f"best of the table: {top:.2f}")
    axes.set_xlabel("epoch")
    measured = f"{epochs[0].measure.name} with shared weights{', %' if epochs[0].measure.unit else ''}"
    axes.set_ylabel("test accuracy in the table, %" if tabular else measured)
    axes.margins(y=0.12)
    legend_above(axes)


def table_curves(epochs: Sequence[EpochRecord]) -> str:
    """Draw rank and regret, by the table, of the architecture that the search would have returned after every epoch."""
    series = {name: _table_series(epochs, name) for panel in _TABLE_PANELS for name in panel.lines}
    label = "Rank and regret of the derived architecture after every epoch"
    return panel_curves([record.epoch + 1 for record in epochs], series, _TABLE_PANELS, label=label)


def _table_series(epochs: Sequence[EpochRecord], name: str) -> list[float]:
    entries = (record.table_entry for record in epochs)
    return [math.nan if entry is None else float(getattr(entry, name)) for entry in entries]


_TABLE_PANELS = (
    Panel("rank in the table (1 is the best)", {"rank": "derived architecture"}),
    Panel("regret: points below the best of the table", {"regret": "derived architecture"}),
)


# --- the cost, where there is a target


def list_costs(history: Sequence[SearchRecord]) -> tuple[list[int], list[float]]:
    """Return the numbers of epochs or trials, and what their architectures cost; NaN where it is not known."""
    costs = [one.cost if isinstance(one, TrialRecord) else one.metrics.get(COST_METRIC) for one in history]
    numbers = [one.trial if isinstance(one, TrialRecord) else one.epoch + 1 for one in history]
    return numbers, [math.nan if cost is None else cost for cost in costs]


def target_curve(history: Sequence[SearchRecord], target: float, metric: str) -> str:
    """Draw the cost of the derived architecture, or of every trial, against the target."""
    numbers, costs = list_costs(history)
    if not drop_unknown(costs):
        return ""
    trials = bool(trials_of(history))

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        line = {"linestyle": "none", "marker": "o"} if trials else {"marker": "o" if len(costs) <= 30 else ""}
        label = "every trial" if trials else "the architecture derived after each epoch"
        axes.plot(numbers, costs, color=PALETTE[0], markersize=3, label=label, **line)  # type: ignore[arg-type]
        axes.axhline(target, color="#111827", linestyle="--", linewidth=1.0, label=f"target: {target:,.6g}")
        axes.set_xlabel("trial" if trials else "epoch")
        axes.set_ylabel(make_printable(metric.replace("_", " ")))
        axes.margins(y=0.15)
        whole_steps(axes)
        legend_above(axes)

    return svg(draw, height=2.6, label=f"Cost against the target of {target:g} {metric}")


# --- how the choices settled


def probabilities(epochs: Sequence[EpochRecord], decisions: Sequence[Decision]) -> str:
    """Draw the probability of every option over time: a panel per decision or, for many, their entropy as colours."""
    shown = [record for record in epochs if record.probabilities is not None]
    table = {decision.name: _option_series(shown, decision) for decision in decisions}
    decisions = [decision for decision in decisions if any(drop_unknown(values) for values in table[decision.name])]
    if not decisions:
        return ""
    if len(decisions) > MOST_PANELS:
        return _entropy_map(shown, decisions, [_entropies(table[decision.name]) for decision in decisions])
    return _small_panels(shown, decisions, [table[decision.name] for decision in decisions])


def _option_series(epochs: Sequence[EpochRecord], decision: Decision) -> list[list[float]]:
    """Return one number per record for each option; a gap where a record has another number of options."""
    missing = [math.nan] * len(decision.options)
    rows = [(record.probabilities or {}).get(decision.name, missing) for record in epochs]
    fitting = [row if len(row) == len(missing) else missing for row in rows]
    return [[row[option] for row in fitting] for option in range(len(decision.options))]


def _small_panels(
    epochs: Sequence[EpochRecord], decisions: Sequence[Decision], table: Sequence[list[list[float]]]
) -> str:
    columns = len(decisions) if len(decisions) <= 3 else 3 if len(decisions) <= 9 else 7
    rows = math.ceil(len(decisions) / columns)
    options = list(dict.fromkeys(option for decision in decisions for option in decision.options))
    colours, dashes = _option_colours(options), _option_dashes(options)
    numbers, last = [record.epoch + 1 for record in epochs], epochs[-1].architecture
    flat = [value for values in table for line in values for value in drop_unknown(line)]

    def draw(figure: Figure) -> None:
        panels = grid(figure, len(decisions), columns=columns, shared=True)
        for place, (axes, decision, values) in enumerate(zip(panels, decisions, table, strict=False)):
            for option, line in zip(decision.options, values, strict=True):
                draw_line(axes, numbers, line, colour=colours[option], label=option, dash=dashes[option])
            _name_panel(axes, decision, last.get(decision.name), colours)
            if place >= len(decisions) - columns:
                axes.set_xlabel("epoch")
        if min(flat) >= 0 and max(flat) <= 1:
            panels[0].set_ylim(-0.03, 1.03)
        _shared_legend(figure, options, colours, dashes)

    height = rows * (1.75 if columns < 7 else 1.3) + 0.5
    return svg(draw, height=height, label=f"Probability of every option for {len(decisions)} decisions over epochs")


def _name_panel(axes: Axes, decision: Decision, chosen: str | None, colours: dict[str, str]) -> None:
    """Write the decision's name and below it the final option, in that option's colour."""
    axes.set_title(make_printable(shorten(decision.name, longest=26)), loc="left", fontsize=7.0, pad=12)
    if chosen is not None:
        colour = colours.get(chosen, MUTED)
        text = make_printable(shorten(chosen, longest=26))
        axes.annotate(text, (0, 1), xytext=(0, 3), xycoords="axes fraction", textcoords="offset points", color=colour,
                      fontsize=6.5, fontweight="bold")  # fmt: skip


def _option_colours(options: Sequence[str]) -> dict[str, str]:
    """Return a colour per option; `none` is grey."""
    return {NONE: MUTED, **{option: colour_of(place) for place, option in enumerate(_real_options(options))}}


def _option_dashes(options: Sequence[str]) -> dict[str, Dash]:
    """Return a dash per option: options of equal colour differ in it."""
    return {NONE: "-", **{option: dash_of(place) for place, option in enumerate(_real_options(options))}}


def _real_options(options: Sequence[str]) -> list[str]:
    return [option for option in options if option != NONE]


def _shared_legend(figure: Figure, options: Sequence[str], colours: dict[str, str], dashes: dict[str, Dash]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=colours[one], linestyle=dashes[one], linewidth=LEGEND_LINE) for one in options]
    names = [legend_text(option) for option in options]
    columns = legend_columns(len(options), most=MOST_LEGEND_COLUMNS)
    rows = math.ceil(len(options) / columns)
    figure.set_figheight(figure.get_figheight() + LEGEND_ROW * (rows - 1))  # else it takes the place of the panels
    figure.legend(handles, names, loc="outside upper center", ncols=columns, handlelength=LEGEND_HANDLE)


def _entropy_map(epochs: Sequence[EpochRecord], decisions: Sequence[Decision], entropies: Sequence[list[float]]) -> str:
    step = math.ceil(len(decisions) / MOST_ROW_NAMES)
    rows = range(0, len(decisions), step)
    numbers = [record.epoch + 1 for record in epochs]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        extent = (numbers[0] - 0.5, max(numbers[-1], numbers[0]) + 0.5, len(decisions) - 0.5, -0.5)
        image = axes.imshow(
            entropies, aspect="auto", interpolation="nearest", cmap="viridis", vmin=0, vmax=1, extent=extent
        )
        axes.set_yticks(list(rows), [make_printable(shorten(decisions[row].name, longest=26)) for row in rows])
        axes.set_xlabel("epoch")
        axes.grid(visible=False)
        whole_steps(axes)
        figure.colorbar(image, ax=axes, label="entropy: 0 decided, 1 undecided", pad=0.02)

    label = f"Entropy of {len(decisions)} decisions over epochs"
    return svg(draw, height=min(0.022 * len(decisions) + 1.6, 8.0), label=label)


def _entropies(values: Sequence[Sequence[float]]) -> list[float]:
    """Return how undecided the options are, per record: 0 where one has it all, 1 where all are equal."""
    return [_entropy(row) for row in zip(*values, strict=True)]


def _entropy(row: Sequence[float]) -> float:
    total = sum(row)
    if math.isnan(total) or min(row) < 0 or total <= 0:
        return math.nan
    shares = [value / total for value in row if value > 0]
    return -sum(share * math.log(share) for share in shares) / math.log(max(len(row), 2))


# --- the numbers behind the plots


def tabulate_trials(trials: Sequence[TrialRecord]) -> Table:
    """Return a row per trial."""
    if not drop_unknown([record.score for record in trials]):
        return Table("", ())
    rows = [
        (one.trial, *trial_figures(one).values(), one.trainings, one.cost, *_entry_figures(one), one.text)
        for one in trials
    ]
    columns = ("trial", *trial_figures(trials[0]), "trainings", "cost", *_ENTRY_FIGURES, "architecture")
    return number_table(columns, rows)


def tabulate_stability(epochs: Sequence[EpochRecord]) -> Table:
    """Return a row per epoch: accuracies, rank and regret of the architecture that was derived after it."""
    rows = [(one.epoch + 1, one.measure.to_figure(one.derived_score), *_entry_figures(one), one.text) for one in epochs]
    name = epochs[0].measure.name if epochs else ACCURACY.name
    known = drop_unknown(_list_derived_figures(epochs))
    return number_table(
        ("epoch", f"{name} with shared weights", *_ENTRY_FIGURES, "architecture"), rows if known else ()
    )


_ENTRY_FIGURES = ("test accuracy in the table, %", "rank", "regret")


def _entry_figures(record: SearchRecord) -> tuple[object, ...]:
    entry = record.table_entry
    return (None, None, None) if entry is None else (entry.test, entry.rank, entry.regret)


def tabulate_costs(history: Sequence[SearchRecord], target: float) -> Table:
    """Return a row per epoch or trial whose cost is known."""
    rows = [(place, cost, target) for place, cost in zip(*list_costs(history), strict=True) if not math.isnan(cost)]
    return number_table((unit_of(history), "cost", "target"), rows)


def tabulate_probabilities(epochs: Sequence[EpochRecord], decisions: Sequence[Decision]) -> Table:
    """Return a row per epoch, decision and option."""
    rows = [
        (record.epoch + 1, decision.name, option, value)
        for record in epochs
        if record.probabilities is not None
        for decision in decisions
        for option, value in zip(decision.options, record.probabilities.get(decision.name, ()), strict=False)
    ]
    return number_table(("epoch", "decision", "option", "probability"), rows)
