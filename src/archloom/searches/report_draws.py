"""Plots of draws from a posterior: the probability of each option to be the best, and how the draws went."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from archloom.reports.curves import Panel, Series, panel_curves
from archloom.reports.figures import MUTED, svg
from archloom.reports.markup import make_printable, shorten
from archloom.reports.tables import Table, number_table, series_table
from archloom.searches.history import metric_series
from archloom.searches.records import EpochRecord

if TYPE_CHECKING:  # reports need no torch
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from archloom.policies.posterior import DecisionPosterior

MOST_ROWS = 40  # decisions of a map; of more, the least certain ones
INK, PAPER = "#111827", "#ffffff"
DARK = 0.85  # cells beyond it are written on in white
DARKEST = 1.35  # where the colours end: that of 1 must leave a frame in ink to be seen
ROW_HEIGHT = 0.27  # inches


# --- which option is the best


def best_map(decisions: Mapping[str, DecisionPosterior], derived: Mapping[str, str]) -> str:
    """Draw decisions by options: how often each was the best. Credible sets have frames, the result has diamonds."""
    shown = pick_least_certain(decisions)
    if not shown:
        return ""
    options = list(dict.fromkeys(option for decision in shown.values() for option in decision.best))

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        _draw_cells(axes, list(shown.values()), options)
        for row, (name, decision) in enumerate(shown.items()):
            for column, option in enumerate(options):
                _mark_cell(axes, (column, row), decision, option, chosen=derived.get(name) == option)
        _name_cells(axes, list(shown), options)

    label = f"Probability of every option to be the best one, for {len(shown)} decisions"
    return svg(draw, height=ROW_HEIGHT * len(shown) + 0.7, label=label, on_paper=True)


def pick_least_certain(decisions: Mapping[str, DecisionPosterior]) -> dict[str, DecisionPosterior]:
    """Return all decisions, or as many as a map can show: the least certain ones, in their own order."""
    by_doubt = sorted(decisions, key=lambda name: (-len(decisions[name].credible_set), decisions[name].probability))
    kept = set(by_doubt[:MOST_ROWS])
    return {name: decision for name, decision in decisions.items() if name in kept}


def _draw_cells(axes: Axes, decisions: Sequence[DecisionPosterior], options: Sequence[str]) -> None:
    table = [[decision.best.get(option, math.nan) for option in options] for decision in decisions]
    edges = [place - 0.5 for place in range(len(options) + 1)], [place - 0.5 for place in range(len(decisions) + 1)]
    axes.pcolormesh(*edges, table, cmap="Blues", vmin=0, vmax=DARKEST, edgecolors=PAPER, linewidth=1.0)
    axes.set_ylim(len(decisions) - 0.5, -0.5)


def _mark_cell(axes: Axes, place: tuple[int, int], decision: DecisionPosterior, option: str, *, chosen: bool) -> None:
    """Write the percentage of a cell, frame the credible set, and mark the option of the result with a diamond."""
    from matplotlib.patches import Rectangle  # late: matplotlib is slow to import

    probability = decision.best.get(option)
    if probability is None:  # a decision without this option
        return
    column, row = place
    credible = option in decision.credible_set
    ink = PAPER if probability > DARK else INK if credible or chosen else MUTED
    weight = "bold" if credible else "normal"
    text = _percent_text(probability)
    axes.text(column, row, text, ha="center", va="center", color=ink, fontweight=weight, fontsize=7.5)
    if credible:
        axes.add_patch(Rectangle((column - 0.47, row - 0.41), 0.94, 0.82, fill=False, edgecolor=INK, linewidth=1.3))
    if chosen:
        axes.plot([column - 0.32], [row], marker="D", markersize=4.0, color=ink)


def _percent_text(probability: float) -> str:
    """Return whole percent, and never 0 or 100 for what is neither."""
    return "<1" if 0 < probability < 0.005 else ">99" if 0.995 <= probability < 1 else f"{100 * probability:.0f}"


def _name_cells(axes: Axes, decisions: Sequence[str], options: Sequence[str]) -> None:
    longest = 100 // len(options) + 2
    axes.set_xticks(range(len(options)), [make_printable(shorten(option, longest=longest)) for option in options])
    axes.set_yticks(range(len(decisions)), [make_printable(shorten(name, longest=26)) for name in decisions])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def tabulate_best(decisions: Mapping[str, DecisionPosterior]) -> Table:
    """Return a row per decision and option: how often it was the best, and whether it is in the credible set."""
    rows = [
        (name, option, share, "yes" if option in decision.credible_set else "no")
        for name, decision in decisions.items()
        for option, share in decision.best.items()
    ]
    return number_table(("decision", "option", "probability of being best", "in the credible set"), rows)


# --- how the draws went

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


def draw_curves(epochs: Sequence[EpochRecord]) -> str:
    """Draw how large the draws were, how many were limited, and where the logits went; '' for other searches."""
    metrics = metric_series(epochs)
    if not _has_draws(metrics):
        return ""
    return panel_curves(
        [record.epoch + 1 for record in epochs], metrics, _PANELS, label="Sampling diagnostics over epochs"
    )


def _has_draws(metrics: Series) -> bool:
    return any(panel.has_content(metrics) for panel in _PANELS if panel.title.endswith(MOVES))


def tabulate_draws(epochs: Sequence[EpochRecord]) -> Table:
    """Return what the curves show, a row per epoch; nothing for other searches."""
    metrics = metric_series(epochs)
    if not _has_draws(metrics):
        return Table("", ())
    shown = {name: values for name, values in metrics.items() if name in SHOWN_WITH_DRAWS}
    return series_table("epoch", [record.epoch + 1 for record in epochs], shown)
