"""Progress of many jobs: a line per job in a log, bars in a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from archloom.core.console import open_message_console, print_line
from archloom.core.errors import (
    escape_controls,
)
from archloom.core.events import JobEnded, JobEvent, JobListener, JobLogged, JobProgressed, JobStarted
from archloom.core.progress_display import choose_display, is_interactive

LINES_OF_A_LOG = 40  # a log of more jobs has a line for every so many
FEW = 4  # jobs whose epochs have a line each


@contextmanager
def show_job_progress(console: Console, *, total: int, quiet: bool = False) -> Iterator[JobListener]:
    """Give a listener that shows the progress of jobs in the way that suits the console."""
    nothing = quiet or total == 0
    with choose_display(
        console, nothing, lambda event: None, lambda: Log(console, total), lambda: Bars(console, total)
    ) as shown:
        yield shown


@contextmanager
def show_api_job_progress(progress: bool | None, total: int) -> Iterator[JobListener]:
    """Yield a listener to jobs for a call from Python; with None it shows progress in a terminal or a notebook."""
    console = open_message_console()
    shown = is_interactive(console) if progress is None else progress
    with show_job_progress(console, total=total, quiet=not shown) as listener:
        yield listener


class Log:
    """A line per job, or per so many of them, and one for every failure; of few jobs also one per epoch and phase."""

    def __init__(self, console: Console, total: int) -> None:
        self._console, self._total, self._done = console, total, 0

    def __call__(self, event: JobEvent) -> None:
        if isinstance(event, JobLogged) and self._total <= FEW:
            print_line(f"{event.job}: {event.line}", console=self._console)
        if not isinstance(event, JobEnded):
            return
        self._done += not event.retrying and not event.stopped
        due = self._done % -(-self._total // LINES_OF_A_LOG) == 0 or self._done == self._total
        if due or event.failure or event.stopped:
            print_line(f"{describe_end(event)} ({self._done:,} of {self._total:,})", console=self._console)


def describe_end(event: JobEnded) -> str:
    """Return how a job ended."""
    if event.failure is not None:
        return f"{event.job}: failed{', retrying' if event.retrying else ''}: {event.failure.message}"
    return f"{event.job}: {'stopped and saved' if event.stopped else 'finished'}"


class Bars:
    """A bar for all, and a line for each job that runs; another thread draws them."""

    def __init__(self, console: Console, total: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._console, self._total, self._done = console, total, 0
        self._clock, self._begun = clock, clock()
        self._running: dict[str, float] = {}
        self._lines: dict[str, str] = {}  # the last of each job

    def __call__(self, event: JobEvent) -> None:
        if isinstance(event, JobLogged):
            self._lines[event.job] = event.line
            return
        running = {name: share for name, share in self._running.items() if name != event.job}
        if isinstance(event, JobStarted | JobProgressed):
            running[event.job] = event.share if isinstance(event, JobProgressed) else 0.0
        else:
            self._done += not event.retrying and not event.stopped
            if event.failure is not None:
                print_line(describe_end(event), console=self._console)
        self._running = dict(sorted(running.items()))  # replaced, not changed: it may be drawn right now

    def render(self) -> RenderableType:
        """Return one line per running job below a line for all of them."""
        seconds = round(self._clock() - self._begun)
        lines = Table.grid(padding=(0, 1, 0, 0))
        lines.add_row(
            f"{self._done:,} of {self._total:,}",
            ProgressBar(total=self._total, completed=self._done, width=30),
            f"{seconds // 60}:{seconds % 60:02d} elapsed",
        )
        for name, share in self._running.items():
            said = Text(escape_controls(self._lines.get(name, "")), no_wrap=True, overflow="ellipsis", style="dim")
            bar = ProgressBar(total=1.0, completed=share, width=30)
            lines.add_row(Text(escape_controls(name)), bar, f"{100 * share:.0f} %", said)
        return Group(lines)
