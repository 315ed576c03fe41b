"""A figure of a page: how it is drawn, the numbers behind it, and how to read it.

Reports draw all figures of a page at once. The dashboard draws those that are looked at, and saves them as SVG or CSV.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from archloom.reports.figures import narrow_figures
from archloom.reports.tables import Table


@dataclass(frozen=True)
class Picture:
    """A drawing that is made when it is asked for."""

    name: str  # unique on its page, for addresses and file names
    heading: str
    draw: Callable[[], str]  # returns SVG, or '' where there is nothing to draw
    tabulate: Callable[[], Table]  # returns the numbers that the drawing shows
    caption: str = ""
    is_quick: bool = False  # our own SVG, which takes no time

    @cached_property
    def svg(self) -> str:
        """Return the drawing, made once."""
        return self.draw()

    @cached_property
    def narrow(self) -> str:
        """Return the drawing for a narrow page, made once; the same one where it has no other."""
        with narrow_figures():
            return self.draw()

    @cached_property
    def table(self) -> Table:
        """Return the numbers, collected once."""
        return self.tabulate()

    def __bool__(self) -> bool:
        """Return whether there is anything to draw, without drawing it."""
        return bool(self.table.rows)
