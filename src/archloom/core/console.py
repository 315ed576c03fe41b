"""Where commands and progress are printed: results to standard output, everything else to standard error.

Names and architectures come from files and plug-ins and may hold brackets, so text is never parsed as markup.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
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
