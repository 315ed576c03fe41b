"""Progress of a run: a live bar in a terminal, a plain line per epoch in a log."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, Self, TypeVar

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from archloom.core.console import open_message_console, print_line
from archloom.core.errors import (
    escape_controls,
)
from archloom.core.events import Deriving, Event, Listener, Planning, Recorded
from archloom.core.progress_lines import LogLines, Pace

BAR_LINES = 2
SECONDS_BETWEEN, NOTEBOOK_WIDTH = 0.25, 100

EventT = TypeVar("EventT", contravariant=True)


@contextmanager
def show_progress(console: Console, *, quiet: bool = False) -> Iterator[Listener]:
    """Yield a listener that shows progress in the way that suits the console."""
    pace = Pace()
    with choose_display(console, quiet, pace.update, lambda: _Log(pace, console), lambda: _Bar(pace, console)) as shown:
        yield shown


class Display(Protocol[EventT]):
    """A listener that another thread draws."""

    def __call__(self, event: EventT) -> None: ...

    def render(self) -> RenderableType: ...


@contextmanager
def choose_display(
    console: Console,
    quiet: bool,
    silent: Callable[[EventT], None],
    log: Callable[[], Callable[[EventT], None]],
    live: Callable[[], Display[EventT]],
) -> Iterator[Callable[[EventT], None]]:
    """Yield the silent listener, lines for a log, or a live display for a terminal."""
    if quiet:
        yield silent
    elif console.is_jupyter:
        with NotebookDisplay(live()) as shown:
            yield shown
    elif not console.is_terminal:
        yield log()
    else:
        display = live()
        with Live(console=console, get_renderable=display.render, transient=True, refresh_per_second=4):
            yield display


def is_interactive(console: Console) -> bool:
    """Return whether output is seen at once: in a terminal or in a notebook."""
    return console.is_terminal or console.is_jupyter


@contextmanager
def show_api_progress(progress: bool | None, listeners: Sequence[Listener]) -> Iterator[list[Listener]]:
    """Yield the listeners of a call from Python, with one that shows progress.

    Args:
        progress: whether to show it; None: in a terminal or a notebook.
        listeners: those of the caller.
    """
    console = open_message_console()
    if not (is_interactive(console) if progress is None else progress):
        yield list(listeners)
        return
    with show_progress(console) as shown:
        yield [shown, *listeners]


class NotebookDisplay(Generic[EventT]):
    """A display in the output of a notebook's cell: one place whose text is replaced; it is empty at the end.

    The live display of rich needs widgets in a notebook, which are seldom installed and not stored with it.
    """

    def __init__(self, display: Display[EventT], clock: Callable[[], float] = time.monotonic) -> None:
        self._display, self._clock, self._shown_at = display, clock, -math.inf
        self._place: Any = None  # of IPython, which has no types

    def __enter__(self) -> Self:
        import IPython.display  # late: there only in a notebook

        display: Any = IPython.display.display  # it has no types
        self._place = display(self._bundle(), raw=True, display_id=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._place.update({"text/plain": ""}, raw=True)

    def __call__(self, event: EventT) -> None:
        self._display(event)
        if self._clock() >= self._shown_at + SECONDS_BETWEEN:
            self._shown_at = self._clock()
            self._place.update(self._bundle(), raw=True)

    def _bundle(self) -> dict[str, str]:
        console = Console(file=io.StringIO(), width=NOTEBOOK_WIDTH, force_jupyter=False, force_terminal=False)
        with console.capture() as captured:
            console.print(self._display.render())
        return {"text/plain": captured.get()}


class _Log:
    """Prints the lines of a log."""

    def __init__(self, pace: Pace, console: Console) -> None:
        self._lines, self._console = LogLines(pace), console

    def __call__(self, event: Event) -> None:
        for line in self._lines(event):
            print_line(line, console=self._console)


class _Bar:
    """A live bar of two lines; its content is made when events arrive, since another thread draws it."""

    def __init__(self, pace: Pace, console: Console) -> None:
        self._pace, self._console = pace, console
        self._figures = ""
        self._shown: RenderableType = Text("starting")

    def __call__(self, event: Event) -> None:
        self._pace.update(event)
        if isinstance(event, Planning):
            print_line(event.line, console=self._console)
            return
        if isinstance(event, Recorded) and (text := self._pace.new_warning(event.record)):
            print_line(text, console=self._console)
        if isinstance(event, Deriving):
            self._shown = Group(self._first_line(), Text(escape_controls(event.what)))
        else:
            self._figures = self._pace.figures or self._figures  # at an epoch's end the last ones stay
            second = ", ".join(part for part in (self._figures, self._pace.status) if part)
            self._shown = Group(self._first_line(), Text(escape_controls(second), no_wrap=True, overflow="ellipsis"))

    def _first_line(self) -> Table:
        line = Table.grid(padding=(0, 1, 0, 0))
        bar = ProgressBar(total=self._pace.total, completed=self._pace.position, width=30)
        line.add_row(self._pace.place, bar, self._pace.times)
        return line

    def render(self) -> RenderableType:
        return self._shown
