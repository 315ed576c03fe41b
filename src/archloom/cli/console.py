"""Where commands print: results to standard output, everything else to standard error.

Names and architectures come from files and plug-ins and may hold brackets, so text is never parsed as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from archloom.core.errors import escape_controls


class PlainConsole(Console):
    """Prints text as it is: no markup, and control characters of names escaped."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text to print: rich asks for every string, also in cells of tables."""
        return super().render_str(escape_controls(text), **options)


def open_result_console() -> Console:
    """Return a console for results, on standard output: they can be piped into a file."""
    return PlainConsole()


def open_message_console() -> Console:
    """Return a console for progress, warnings and errors, on standard error."""
    return PlainConsole(stderr=True)


def print_line(message: str, *, console: Console | None = None) -> None:
    """Print one line without breaking it, so that paths and names can be copied."""
    (console or open_message_console()).print(message, soft_wrap=True)


def print_warning(message: str) -> None:
    """Print a warning on standard error."""
    print_line(f"warning: {message}", console=open_message_console())


def make_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None = None) -> Table:
    """Return a table with headings; its first column is never broken."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for position, column in enumerate(columns):
        table.add_column(column, no_wrap=position == 0, overflow="fold", header_style="bold")
    for row in rows:
        table.add_row(*row)
    return table


def make_fact_table(rows: Iterable[tuple[str, str]]) -> Table:
    """Return a table of names and values, without headings."""
    table = Table.grid(padding=(0, 3, 0, 0))
    for name, value in rows:
        table.add_row(name, value)
    return table
