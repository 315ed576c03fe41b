"""Figures as SVG text that may stand inside a page, and the pieces that plots have in common.

Figures are made without pyplot, whose hidden global state and windows have no place in a library.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal

from archloom.reports.markup import escape, make_printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, NARROW_WIDTH = 10.0, 3.9  # inches: on a page of 1,000 pixels and on a telephone, with letters of one size
NARROWEST_PANEL = 2.2

Dash = Literal["-", "--", ":", "-."]

# distinct with any colour vision, and seen on white and on dark paper: a test computes both
PALETTE = ("#0077cc", "#dd6600", "#00aaaa", "#bb2288", "#aa88ff", "#885522")
DASHES: tuple[Dash, ...] = ("-", "--", ":", "-.")
MUTED = "#9ca3af"  # for `none`, and whatever should stand back

_STYLE: dict[Any, Any] = {  # Any: the library types its keys as several hundred literals
    "svg.image_inline": True,
    "svg.fonttype": "none",  # text stays text: small files, selectable, drawn in the reader's font
    "text.usetex": False,
    "text.parse_math": False,  # a '$' in a name is a '$'
    "font.family": ["sans-serif"],
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.edgecolor": "#9ca3af",
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#e5e7eb",
    "grid.linewidth": 0.6,
    "xtick.color": "#4b5563",
    "ytick.color": "#4b5563",
    "lines.linewidth": 1.5,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


def colour_of(place: int) -> str:
    """Return the colour of the line at this place; it repeats."""
    return PALETTE[place % len(PALETTE)]


def dash_of(place: int) -> Dash:
    """Return the dash of the line at this place: neighbours differ in it, and so do lines of equal colour."""
    rounds = place // (len(PALETTE) * len(DASHES) // 2)  # after so many lines, colour and dash would repeat
    return DASHES[(place + rounds) % len(DASHES)]


_IS_NARROW: ContextVar[bool] = ContextVar("archloom_narrow_figures", default=False)


@contextmanager
def narrow_figures() -> Iterator[None]:
    """Draw figures for a narrow page: fewer columns, and letters as large as ever."""
    before = _IS_NARROW.set(True)
    try:
        yield
    finally:
        _IS_NARROW.reset(before)


def draw_line(
    axes: Axes, epochs: Sequence[float], values: Sequence[float], *, colour: str, label: str, dash: Dash = "-"
) -> None:
    """Draw a line over epochs. Short lines have points: one epoch, or one between gaps, stays visible."""
    marker = "o" if len(values) <= 30 else ""
    axes.plot(epochs, values, dash, color=colour, marker=marker, markersize=2.4, label=legend_text(label))
    whole_steps(axes)


def legend_above(axes: Axes) -> None:
    """Draw the legend above the axes, where it covers nothing."""
    columns = 1 if _IS_NARROW.get() else 3
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns)


def legend_columns(count: int, *, most: int) -> int:
    """Return the columns of a legend over a whole figure: two where it is narrow, since names keep their size."""
    return min(count, 2 if _IS_NARROW.get() else most)


def legend_text(text: str) -> str:
    """Return text that a legend shows: matplotlib leaves out labels that begin with '_'."""
    return " " + make_printable(text) if text.startswith("_") else make_printable(text)


def whole_steps(axes: Axes) -> None:
    """Label whole numbers only: epochs and trials have no parts."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))


def grid(figure: Figure, count: int, *, columns: int, shared: bool = False) -> list[Axes]:
    """Return `count` panels in rows of `columns`, fewer on a narrow figure, which grows; spare places stay empty."""
    fitting = max(1, min(columns, int(figure.get_figwidth() / NARROWEST_PANEL)))
    rows, planned = math.ceil(count / fitting), math.ceil(count / columns)
    figure.set_figheight(figure.get_figheight() * rows / planned)
    columns = fitting
    panels = figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared)
    flat: list[Axes] = list(panels.flat)
    for spare in flat[count:]:
        spare.remove()
    return flat[:count]


def make_figure(
    draw: Callable[[Figure], None], *, height: float, label: str = "", width: float | None = None
) -> Figure:
    """Return a fresh figure with a drawing, in our style whatever the user's own matplotlib settings are."""
    import matplotlib  # late: slow to import

    from archloom.reports.shown_figure import ShownFigure

    with matplotlib.rc_context(_style(label)):
        width = width or (NARROW_WIDTH if _IS_NARROW.get() else WIDTH)
        figure = ShownFigure(figsize=(width, height), layout="constrained")
        draw(figure)
    return figure


def svg(
    draw: Callable[[Figure], None], *, height: float, label: str, on_paper: bool = False, width: float | None = None
) -> str:
    """Return a drawing as inline SVG; `on_paper` keeps its colours on a dark page: text on a map of colours.

    `width` is that of a picture outside of pages, which choose between a broad and a narrow figure themselves.
    """
    import matplotlib  # late: slow to import

    figure, buffer = make_figure(draw, height=height, label=label, width=width), io.StringIO()
    with matplotlib.rc_context(_style(label)):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    place = "narrow" if _IS_NARROW.get() else "broad"
    return _inline(buffer.getvalue(), label, kind=f"plot {place}{' paper' if on_paper else ''}")


def _style(label: str) -> dict[Any, Any]:
    salt = f"{make_printable(label)}{' narrow' if _IS_NARROW.get() else ''}"
    return {**_STYLE, "svg.hashsalt": salt}  # the salt keeps ids of two figures of a page apart


def _inline(text: str, label: str, *, kind: str) -> str:
    """Return the SVG without prologue, without styles for the whole page, and with no ids but those referred to.

    Styles become attributes: a page may forbid inline styles, and its style sheet can change an attribute in the dark.
    """
    body = text[text.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    body = re.sub(r' style="([^"]*)"', lambda found: _attributes(found[1]), body)
    root = (
        f'<svg role="img" aria-label="{escape(label)}" stroke-linejoin="round" font-family="sans-serif" class="{kind}"'
    )
    return re.sub(r'<svg(?: (?:width|height)="[^"]*")*', lambda _: root, body, count=1)


def _attributes(style: str) -> str:
    """Return ` fill="none" stroke="#9ca3af"` of `fill: none; stroke: #9ca3af`; the root names the font of all text."""
    pairs = (part.split(":", 1) for part in style.split(";") if ":" in part)
    return "".join(f' {name.strip()}="{value.strip()}"' for name, value in pairs if name.strip() != "font-family")
