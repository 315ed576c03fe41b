"""What commands print: lines, warnings and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table

from archloom.core.console import PlainConsole, open_message_console, open_result_console, print_line

__all__ = [
    "PlainConsole", "make_fact_table", "make_table", "open_message_console", "open_result_console", "print_line",
    "print_warning",
]  # fmt: skip


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
