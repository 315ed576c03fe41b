"""A search with somebody attending: progress while it runs, a clean stop on Ctrl-C, the outcome at the end."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import typer

from archloom.cli.console import messages, results, say
from archloom.cli.outcome import print_outcome
from archloom.cli.progress import BAR_LINES, shown_progress

if TYPE_CHECKING:  # torch is imported when a search begins, not to print help
    from archloom.core.events import Listener
    from archloom.searches.result import SearchResult

Begin = Callable[["Listener", Callable[[], bool]], "SearchResult"]
"""Runs a search, given who listens to it and a question that it asks: whether to stop."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether somebody asked to stop, and by which signal."""

    def __init__(self) -> None:
        self._signal: int | None = None

    def __call__(self) -> bool:
        return self._signal is not None

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that a signal ended."""
        return 128 + (self._signal or signal.SIGINT)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The first signal asks to stop, the second one stops."""
        if self._signal is not None:
            raise KeyboardInterrupt
        self._signal = number
        # past Python's buffers, which the signal may have interrupted, and clear of the lines that the bar redraws
        with suppress(OSError):
            os.write(2, b"\nsaving; press Ctrl-C again to quit at once" + b"\n" * BAR_LINES)


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Within, Ctrl-C and SIGTERM ask to stop instead of killing."""
    request = StopRequest()
    before = {number: signal.signal(number, request.handle) for number in SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stopping_cleanly(command: str, directory: Path) -> Iterator[StopRequest]:
    """Within, Ctrl-C asks to stop; afterwards the user is told how to go on: by that command with that directory."""
    from archloom.execution.loop import Interrupted

    hint = f"continue with: archloom {command} {shlex.quote(str(directory))}"
    with stop_on_signals() as stop:
        try:
            yield stop
        except Interrupted as interrupted:
            say(f"stopped and saved; {hint}", console=messages())
            raise typer.Exit(stop.exit_code) from interrupted
        except KeyboardInterrupt as interrupted:
            say(f"stopped; what was saved before is kept; {hint}", console=messages())
            raise typer.Exit(stop.exit_code) from interrupted


def attend(begin: Begin, *, directory: Path, quiet: bool) -> None:
    """Run a search to its end or to an interruption, and tell the user either way."""
    with stopping_cleanly("resume", directory) as stop, shown_progress(messages(), quiet=quiet) as listener:
        result = begin(listener, stop)
    print_outcome(result, results())
