"""Which classes a model confuses: a map of mistakes, the accuracy by class, the pairs most often confused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from archloom.reports.figures import PALETTE, grid, svg
from archloom.reports.markup import make_printable, shorten
from archloom.reports.tables import Table, decimal, number_table, whole
from archloom.retrainings.evaluation import Evaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Counts = Sequence[Sequence[int]]  # [truth][predicted]

MOST_NUMBERS = 20  # classes up to which every cell of the map has its number
MOST_NAMES = 100  # classes up to which every one has its name
LONGEST_NAME = 16
BARS_IN_A_COLUMN = 25
MOST_BARS = 100
MOST_PAIRS = 8
TEXT_HEIGHT = 0.5  # inches, of the names below a map


def divide_rows(counts: Counts) -> list[list[float]]:
    """Return the share of each class that was predicted as each class; zero for a class without images."""
    return [[value / total if (total := sum(row)) else 0.0 for value in row] for row in counts]


# --- in rows


def pair_table(evaluation: Evaluation, names: Sequence[str]) -> Table:
    """Return the pairs of classes that are confused most often."""
    rows = tuple(
        (
            shorten(names[truth], longest=40),
            shorten(names[predicted], longest=40),
            whole(count),
            decimal(100 * count / sum(evaluation.confusion[truth]), digits=1, unit=" %"),
        )
        for truth, predicted, count in evaluation.confused_pairs(most=MOST_PAIRS)
    )
    return Table("", rows, ("truth", "predicted", "images", "of its class"))


def tabulate_confusion(counts: Counts, names: Sequence[str]) -> Table:
    """Return a row per class, a column per prediction."""
    rows = [(name, *row) for name, row in zip(names, counts, strict=True)]
    return number_table(("truth", *names), rows)


def tabulate_classes(per_class: Sequence[float | None], names: Sequence[str]) -> Table:
    """Return the accuracy of every class that has images."""
    rows = [(name, value) for name, value in zip(names, per_class, strict=True) if value is not None]
    return number_table(("class", "accuracy, %"), rows)


# --- as pictures


def confusion_map(counts: Counts, names: Sequence[str]) -> str:
    """Draw a row per class and a column per prediction: correct ones blue, wrong ones orange."""
    if not counts:
        return ""
    few, size = len(names) <= MOST_NUMBERS, _font_size(len(names))

    def draw(figure: Figure) -> None:
        if few:  # a square map needs no more height than it has width
            figure.set_figheight(min(figure.get_figheight(), figure.get_figwidth() + TEXT_HEIGHT))
        axes = figure.subplots()
        colours = _colours(counts)
        axes.imshow(colours, aspect="equal" if few else "auto", interpolation="nearest")
        step = math.ceil(len(names) / MOST_NAMES)
        places = range(0, len(names), step)
        labels = [make_printable(shorten(names[place], longest=LONGEST_NAME)) for place in places]
        axes.set_xticks(
            list(places), labels, rotation=90 if len(names) > 6 and max(map(len, labels)) > 2 else 0, fontsize=size
        )
        axes.set_yticks(list(places), labels, fontsize=size)
        axes.tick_params(length=0)
        axes.set_xlabel("predicted")
        axes.set_ylabel("truth")
        axes.grid(visible=False)
        if few:
            _draw_numbers(axes, counts, size)

    return svg(draw, height=_height(len(names)), label=f"Confusion matrix of {len(names)} classes", on_paper=True)


def _font_size(count: int) -> float:
    return 8.0 if count <= 25 else 7.0 if count <= 40 else 5.6


def _height(count: int) -> float:
    """Return the height for a line of text per class, within what a page has."""
    if count <= MOST_NUMBERS:
        return min(2.0 + 0.38 * count, 8.5)
    return min(1.6 + 0.15 * count, 10.2)


def _colours(counts: Counts) -> Any:
    """Return an image [truth, predicted, RGBA]; mistakes are scaled by the greatest of them, or they would be pale."""
    import matplotlib
    import numpy as np

    values = np.asarray(divide_rows(counts))
    mistakes = values * (1 - np.eye(len(values)))
    colours = matplotlib.colormaps["Oranges"](0.6 * np.sqrt(mistakes / max(mistakes.max(), 1e-9)))
    colours[mistakes == 0] = (1, 1, 1, 1)
    diagonal = np.arange(len(values))
    colours[diagonal, diagonal] = matplotlib.colormaps["Blues"](0.15 + 0.75 * values.diagonal())
    return colours


def _draw_numbers(axes: Axes, counts: Counts, size: float) -> None:
    for truth, row in enumerate(divide_rows(counts)):
        for predicted, share in enumerate(row):
            if counts[truth][predicted]:
                dark = truth == predicted and share > 0.55
                text = f"{counts[truth][predicted]:,.0f}"
                axes.text(predicted, truth, text, ha="center", va="center", fontsize=size,
                          color="white" if dark else "#1f2937")  # fmt: skip


def class_bars(per_class: Sequence[float | None], names: Sequence[str]) -> str:
    """Draw the accuracy of every class, the worst first; in columns where they are many."""
    known = [(value, name) for value, name in zip(per_class, names, strict=True) if value is not None]
    worst = sorted(known, key=lambda pair: pair[0])[:MOST_BARS]
    if not worst:
        return ""
    columns = math.ceil(len(worst) / BARS_IN_A_COLUMN)
    rows = math.ceil(len(worst) / columns)

    def draw(figure: Figure) -> None:
        for column, axes in enumerate(grid(figure, columns, columns=columns)):
            _draw_bars(axes, worst[column * rows : (column + 1) * rows], rows)

    return svg(draw, height=0.22 * max(rows, 3) + 0.6, label="Accuracy of every class, the worst first")


def _draw_bars(axes: Axes, bars: Sequence[tuple[float, str]], rows: int) -> None:
    places = range(len(bars))
    axes.barh(places, [value for value, _ in bars], color=PALETTE[0], height=0.72)
    axes.set_yticks(places, [make_printable(shorten(name, longest=LONGEST_NAME)) for _, name in bars], fontsize=7)
    axes.set_ylim(rows - 0.4, -0.6)
    axes.set_xlim(0, 100)
    axes.set_axisbelow(True)
    axes.set_xlabel("accuracy, %")
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    for place, (value, _) in enumerate(bars):
        inside = value > 80
        axes.text(value - 1 if inside else value + 1, place, f"{value:.1f}", va="center", fontsize=6.5,
                  ha="right" if inside else "left", color="white" if inside else "#1f2937")  # fmt: skip
