"""Rank quality of shared weights as sentences, as a table, and as a scatter plot."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import scipy  # loads its parts when they are used

from archloom.reports.figures import PALETTE, grid, svg
from archloom.reports.markup import make_printable, shorten
from archloom.reports.tables import UNKNOWN, Table, decimal

if TYPE_CHECKING:  # reports need no torch
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from archloom.searches.rank_correlation import Estimate, RankAgreement, ScoredPath
    from archloom.searches.ranking import RankResult

WORDS = ((0.2, "hardly"), (0.4, "weakly"), (0.6, "fairly well"), (0.8, "well"), (2.0, "very well"))
LONGEST_TITLE = 60


# --- in words


def describe_ranking(ranked: RankResult) -> Iterator[str]:
    """Yield what the figures say, in plain words."""
    yield _agreement(ranked)
    top = ranked.top
    if top.kendall.value is None:
        yield f"The sample has {top.count} of the table's top tenth: too few to measure how well they are ranked."
    else:
        sentence = f"Among the {top.count} of them in the table's top tenth: {_coefficients(top)}."
        yield sentence + (" That is no better than random order." if _is_undecided(top.kendall) else "")
    if ranked.picked is not None and ranked.best is not None:
        yield (
            f"The architecture that they rank first has {ranked.picked.table:.2f} % in the table, {ranked.regret:.2f} "
            f"points below the best of all; the best of the sample has {ranked.best.table:.2f} %, "
            f"its average is {ranked.average:.2f} %."
        )


def _agreement(ranked: RankResult) -> str:
    every = ranked.all
    source = f"{every.count} architectures, {ranked.metric} accuracy on {ranked.dataset}"
    if ranked.instead_of:
        source += f" instead of {ranked.instead_of}"
    if every.kendall.value is None:
        return f"How shared weights rank architectures is not known: too few, or all scores are equal ({source})."
    return f"Shared weights {_describe_tau(every.kendall)}: {_coefficients(every)} ({source})."


def _describe_tau(kendall: Estimate) -> str:
    if _is_undecided(kendall):
        return "rank architectures no better than random order, as far as the sample shows"
    assert kendall.value is not None, "it has an interval"
    if kendall.value < 0:
        return "rank architectures in reverse order"
    return f"rank architectures {next(word for least, word in WORDS if kendall.value < least)}"


def _is_undecided(estimate: Estimate) -> bool:
    return estimate.low is None or estimate.high is None or estimate.low <= 0 <= estimate.high


def _coefficients(order: RankAgreement) -> str:
    return f"Kendall's tau {format_interval(order.kendall)}; Spearman {format_interval(order.spearman)}"


def format_interval(estimate: Estimate) -> str:
    """Return `0.31, 95 % CI 0.18 to 0.43`."""
    if estimate.low is None:
        return decimal(estimate.value)
    return f"{decimal(estimate.value)}, 95 % CI {_range(estimate)}"


def _range(estimate: Estimate) -> str:
    return UNKNOWN if estimate.low is None else f"{decimal(estimate.low)} to {decimal(estimate.high)}"


# --- in rows


def rank_table(results: Sequence[RankResult]) -> Table:
    """Return a row per run; its path may be long and comes last."""
    columns = ("tau", "95 % CI", "Spearman", "95 % CI", "top tenth", "regret", "evaluated", "run")
    rows = tuple(
        (
            decimal(ranked.all.kendall.value),
            _range(ranked.all.kendall),
            decimal(ranked.all.spearman.value),
            _range(ranked.all.spearman),
            f"{decimal(ranked.top.kendall.value)} (of {ranked.top.count})",
            decimal(ranked.regret),
            str(ranked.evaluated),
            ranked.run,
        )
        for ranked in results
    )
    return Table("", rows, columns)


def to_csv(results: Sequence[RankResult]) -> str:
    """Return a line per architecture and run."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("run", "architecture", "shared_accuracy", "table_accuracy"))
    for ranked in results:
        writer.writerows((ranked.run, one.text, one.shared, one.table) for one in ranked.architectures)
    return text.getvalue()


# --- as a plot


def scatter(results: Sequence[RankResult]) -> str:
    """Draw both accuracies of every architecture, a row per run, and their ranks, since failures lie far off."""

    def draw(figure: Figure) -> None:
        panels = grid(figure, 2 * len(results), columns=2)
        for ranked, (left, right) in zip(results, zip(panels[::2], panels[1::2], strict=True), strict=True):
            points = [(one.shared, one.table) for one in ranked.architectures]
            _draw_points(left, ranked, points)
            left.set_title(make_printable(shorten(ranked.title, longest=LONGEST_TITLE)), loc="left", fontweight="bold")
            left.set_xlabel("accuracy under shared weights, %")
            left.set_ylabel(f"{ranked.metric} accuracy in the table, %")
            left.legend(loc="best")
            _draw_points(right, ranked, _to_ranks(points))
            right.set_title(f"Kendall's tau {format_interval(ranked.all.kendall)}", loc="left")
            right.set_xlabel("rank under shared weights (right is better)")
            right.set_ylabel("rank in the table (up is better)")

    return svg(draw, height=4.2 * len(results), label="Accuracy under shared weights against accuracy in the table")


def _to_ranks(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return ranks from the lowest; equals get the mean of theirs."""
    return list(zip(*(scipy.stats.rankdata(column).tolist() for column in zip(*points, strict=True)), strict=True))


def _draw_points(axes: Axes, ranked: RankResult, points: Sequence[tuple[float, float]]) -> None:
    axes.plot(
        [shared for shared, _ in points], [table for _, table in points], "o", color=PALETTE[0], alpha=0.55,
        markersize=4, markeredgewidth=0, label=f"{len(points)} architectures",
    )  # fmt: skip
    texts = [one.text for one in ranked.architectures]
    for name, colour, label in (("best", PALETTE[2], "best by the table"), ("picked", PALETTE[1], "best by weights")):
        path: ScoredPath | None = getattr(ranked, name)
        if path is not None:
            axes.plot(*points[texts.index(path.text)], "o", markersize=9, markerfacecolor="none",
                      markeredgecolor=colour, markeredgewidth=1.8, label=label)  # fmt: skip
    axes.margins(0.05)
