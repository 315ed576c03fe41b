"""Rank quality of shared weights for readers: in a sentence, in rows, as a scatter plot."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from archloom.reports.figures import PALETTE, grid, svg
from archloom.reports.markup import printable, shortened
from archloom.reports.tables import UNKNOWN, Table, decimal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Ranked = Mapping[str, Any]
"""What `archloom.rank` tells of one run."""

WORDS = ((0.2, "hardly"), (0.4, "weakly"), (0.6, "fairly well"), (0.8, "well"), (2.0, "very well"))
LONGEST_TITLE = 60


# --- in words


def sentences(ranked: Ranked) -> Iterator[str]:
    """What the figures say, in plain words."""
    yield _agreement(ranked)
    top = ranked["top"]
    if top["kendall"]["value"] is None:
        yield f"Of the table's top tenth the sample has {top['count']}: too few to tell whether good ones are ordered."
    else:
        told = f"Among the {top['count']} of them in the table's top tenth: {_coefficients(top)}."
        yield told + (" That is no order that can be told from chance." if _undecided(top["kendall"]) else "")
    if ranked["picked"] is not None:
        yield (
            f"The one they like best has {ranked['picked']['known']:.2f} % in the table, {ranked['regret']:.2f} points "
            f"below the best of all; the sample's own best has {ranked['best']['known']:.2f} %, "
            f"its average {ranked['average']:.2f} %."
        )


def _agreement(ranked: Ranked) -> str:
    every = ranked["all"]
    source = f"{every['count']} architectures, {ranked['metric']} accuracy on {ranked['dataset']}"
    if ranked["instead_of"]:
        source += f" instead of {ranked['instead_of']}"
    if every["kendall"]["value"] is None:
        return f"How shared weights order architectures cannot be told: too few, or all judged alike ({source})."
    return f"Shared weights {_in_words(every['kendall'])}: {_coefficients(every)} ({source})."


def _in_words(kendall: Mapping[str, Any]) -> str:
    if _undecided(kendall):
        return "order architectures no better than chance, as far as can be told"
    if kendall["value"] < 0:
        return "order architectures the wrong way round"
    return f"order architectures {next(word for least, word in WORDS if kendall['value'] < least)}"


def _undecided(estimate: Mapping[str, Any]) -> bool:
    return estimate["low"] is None or estimate["low"] <= 0 <= estimate["high"]


def _coefficients(order: Mapping[str, Any]) -> str:
    return f"Kendall's tau {with_interval(order['kendall'])}; Spearman {with_interval(order['spearman'])}"


def with_interval(estimate: Mapping[str, Any]) -> str:
    """`0.31, 95 % CI 0.18 to 0.43`."""
    if estimate["low"] is None:
        return decimal(estimate["value"])
    return f"{decimal(estimate['value'])}, 95 % CI {_range(estimate)}"


def _range(estimate: Mapping[str, Any]) -> str:
    return UNKNOWN if estimate["low"] is None else f"{decimal(estimate['low'])} to {decimal(estimate['high'])}"


# --- in rows


def rank_table(results: Sequence[Ranked]) -> Table:
    """A row per run, whose path may be long and comes last."""
    columns = ("tau", "95 % CI", "Spearman", "95 % CI", "top tenth", "regret", "judged", "run")
    rows = tuple(
        (
            decimal(ranked["all"]["kendall"]["value"]),
            _range(ranked["all"]["kendall"]),
            decimal(ranked["all"]["spearman"]["value"]),
            _range(ranked["all"]["spearman"]),
            f"{decimal(ranked['top']['kendall']['value'])} (of {ranked['top']['count']})",
            decimal(ranked["regret"]),
            str(ranked["judged"]),
            ranked["run"],
        )
        for ranked in results
    )
    return Table("", rows, columns)


def as_csv(results: Sequence[Ranked]) -> str:
    """Every architecture of every run in a line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("run", "architecture", "shared_accuracy", "table_accuracy"))
    for ranked in results:
        writer.writerows((ranked["run"], one["text"], one["shared"], one["known"]) for one in ranked["architectures"])
    return text.getvalue()


# --- as a plot


def scatter(results: Sequence[Ranked]) -> str:
    """Both judges of every architecture, a row per run: their accuracies and, as failures lie far off, their ranks."""

    def draw(figure: Figure) -> None:
        panels = grid(figure, 2 * len(results), columns=2)
        for ranked, (left, right) in zip(results, zip(panels[::2], panels[1::2], strict=True), strict=True):
            points = [(one["shared"], one["known"]) for one in ranked["architectures"]]
            _draw_points(left, ranked, points)
            left.set_title(printable(shortened(ranked["title"], longest=LONGEST_TITLE)), loc="left", fontweight="bold")
            left.set_xlabel("accuracy under shared weights, %")
            left.set_ylabel(f"{ranked['metric']} accuracy in the table, %")
            left.legend(loc="best")
            _draw_points(right, ranked, _ranked(points))
            right.set_title(f"Kendall's tau {with_interval(ranked['all']['kendall'])}", loc="left")
            right.set_xlabel("rank under shared weights (right is better)")
            right.set_ylabel("rank in the table (up is better)")

    return svg(draw, height=4.2 * len(results), label="Accuracy under shared weights against accuracy in the table")


def _ranked(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Places from the lowest, equals in the middle of theirs."""
    from scipy.stats import rankdata

    return list(zip(*(rankdata(column).tolist() for column in zip(*points, strict=True)), strict=True))


def _draw_points(axes: Axes, ranked: Ranked, points: Sequence[tuple[float, float]]) -> None:
    axes.plot(
        [shared for shared, _ in points], [known for _, known in points], "o", color=PALETTE[0], alpha=0.55,
        markersize=4, markeredgewidth=0, label=f"{len(points)} architectures",
    )  # fmt: skip
    texts = [one["text"] for one in ranked["architectures"]]
    for name, colour, label in (("best", PALETTE[2], "best by the table"), ("picked", PALETTE[1], "best by weights")):
        if ranked[name] is not None:
            axes.plot(*points[texts.index(ranked[name]["text"])], "o", markersize=9, markerfacecolor="none",
                      markeredgecolor=colour, markeredgewidth=1.8, label=label)  # fmt: skip
    axes.margins(0.05)
