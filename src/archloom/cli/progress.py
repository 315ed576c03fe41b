"""Progress of a run: a live bar in a terminal, a plain line per epoch in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import fmean
from typing import Protocol, TypeVar

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from archloom.cli.console import print_line
from archloom.core.errors import (
    escape_controls,
)
from archloom.core.events import (
    Advanced,
    Deriving,
    Event,
    Listener,
    Planning,
    Record,
    Recorded,
    Started,
)

LINES_OF_TRIALS = 10  # how many lines a log gets from a search by trials
BAR_LINES = 2

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
    elif not console.is_terminal:
        yield log()
    else:
        display = live()
        with Live(console=console, get_renderable=display.render, transient=True, refresh_per_second=4):
            yield display


class Pace:
    """Position, metrics and speed of a run: means since the last complete epoch or trial."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._begun = self._since = self._latest = clock()
        self._first, self.position, self.total, self.each = 0, 0, 1, 1
        self._unit = "step"
        self._images = 0
        self._values: dict[str, list[float]] = {}
        self.status = ""  # of the last complete epoch
        self._warned = False

    def update(self, event: Event) -> None:
        """Update the figures with an event."""
        if isinstance(event, Started):
            self._first = self.position = event.position
            self.total, self.each, self._unit = event.total, event.units_per_record, event.unit
            self._begun = self._since = self._clock()
        elif isinstance(event, Advanced):
            self._add(event)
        elif isinstance(event, Recorded):
            self._images, self._values = 0, {}
            self._since = self._clock()
            self.status = event.record.status

    def _add(self, event: Advanced) -> None:
        self.position, self._latest = event.position, self._clock()
        self._images += event.images
        for name, value in event.metrics.items():  # not every step reports all of them
            self._values.setdefault(name, []).append(value)

    def new_warning(self, record: Record) -> str:
        """Return the warning of a record if the record before had none: a lasting alarm is printed once."""
        before, self._warned = self._warned, bool(record.warning)
        return "" if before else record.warning

    @property
    def place(self) -> str:
        """Return `epoch 3/40` or `trial 12/100`."""
        name = "epoch" if self._unit == "step" else self._unit
        records = self.total // self.each
        return f"{name} {min(records, -(-max(1, self.position) // self.each))}/{records}"

    @property
    def figures(self) -> str:
        """Return losses, accuracies and speed, as far as they are reported."""
        means = {name: fmean(values) for name, values in self._values.items()}
        parts = [_pair("loss", means, "loss", "{:.3f}", 1), _pair("accuracy", means, "accuracy", "{:.1f} %", 100)]
        parts.append(_pair("perplexity", means, "perplexity", "{:,.1f}", 1))
        parts += [f"{name} {means[name]:.2f}" for name in ("score", "best") if name in means]
        if self._images:
            examples = "words" if any(name.endswith("perplexity") for name in means) else "images"
            parts.append(f"{self._images / max(1e-9, self._latest - self._since):,.0f} {examples}/s")
        return ", ".join(part for part in parts if part)

    @property
    def times(self) -> str:
        """Time elapsed, and time left at this speed."""
        elapsed = self._clock() - self._begun
        done = self.position - self._first
        left = _clock_text(elapsed * (self.total - self.position) / done) if done else "?"
        return f"{_clock_text(elapsed)} elapsed, {left} left"


def _pair(label: str, means: Mapping[str, float], ending: str, form: str, factor: float) -> str:
    """Return `loss train 0.523 valid 0.611`."""
    values = [
        f"{part} {form.format(factor * means[f'{part}_{ending}'])}"
        for part in ("train", "valid")
        if f"{part}_{ending}" in means
    ]
    return f"{label} {' '.join(values)}" if values else ""


def _clock_text(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class _Log:
    """Prints a line per epoch; of trials, ten lines in all."""

    def __init__(self, pace: Pace, console: Console) -> None:
        self._pace, self._console = pace, console

    def __call__(self, event: Event) -> None:
        if isinstance(event, Recorded) and self._due():  # before the pace is reset
            parts = (self._pace.place, self._pace.figures, event.record.status, self._pace.times)
            print_line("  ".join(part for part in parts if part), console=self._console)
            if text := self._pace.new_warning(event.record):
                print_line(text, console=self._console)
        elif isinstance(event, Deriving):
            print_line(event.what, console=self._console)
        elif isinstance(event, Planning):
            print_line(event.line, console=self._console)
        self._pace.update(event)

    def _due(self) -> bool:
        every = max(1, self._pace.total // LINES_OF_TRIALS) if self._pace.each == 1 else 1
        return self._pace.position % every == 0 or self._pace.position == self._pace.total


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
