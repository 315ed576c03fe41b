"""A whole space: a histogram in text, and accuracy against cost as a plot with its Pareto front."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from archloom.benchmarks.analysis import FrontPoint
from archloom.reports.figures import MUTED, PALETTE, legend_above, svg
from archloom.reports.markup import make_printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST_BAR = 40
TAIL = 0.05  # share of the lowest that a plot leaves out


def histogram_lines(bins: Sequence[tuple[float, float, int]]) -> Iterator[str]:
    """Yield a line per bin: its range, a bar, its count; bins that are not empty have a visible bar."""
    most = max((count for _, _, count in bins), default=0)
    for low, high, count in bins:
        length = max(1, round(LONGEST_BAR * count / most)) if count else 0
        yield f"{low:6.2f} to {high:6.2f}  {'█' * length:<{LONGEST_BAR}}  {count:,}"


def front_csv(front: Sequence[FrontPoint], cost: str) -> str:
    """Return the Pareto front as CSV, the cheapest first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("architecture", cost, "test accuracy, %"))
    writer.writerows((row["text"], row["cost"], row["accuracy"]) for row in front)
    return text.getvalue()


def front_plot(
    cost: Sequence[float], accuracy: Sequence[float], front: Sequence[FrontPoint], *, title: str, cost_name: str
) -> str:
    """Draw every architecture as a point and the front as a line; failures far below are counted, not drawn."""
    floor = sorted(accuracy)[int(TAIL * len(accuracy))]
    below = sum(value < floor - 0.5 for value in accuracy)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.plot(cost, accuracy, ".", color=MUTED, markersize=2, alpha=0.5, rasterized=True,
                  label=f"{len(cost):,} architectures")  # fmt: skip
        axes.step([row["cost"] for row in front], [row["accuracy"] for row in front], "o-", where="post",
                  color=PALETTE[0], markersize=3.5, label=f"Pareto front: {len(front)}")  # fmt: skip
        axes.set_ylim(bottom=floor - 0.5, top=max(accuracy) + 0.5)
        axes.set_title(make_printable(title), loc="left", fontweight="bold", pad=22)
        axes.set_xlabel(
            make_printable(cost_name)
            + (f"  ({below:,} architectures below {floor - 0.5:.1f} % not shown)" if below else "")
        )
        axes.set_ylabel("test accuracy, %")
        legend_above(axes)

    return svg(draw, height=5.0, label=f"{title}: test accuracy against {cost_name}")
