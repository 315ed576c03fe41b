"""Run in a terminal: progress while it runs, a clean stop on Ctrl-C, the result at the end."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TypeVar

import typer
from rich.console import Console

from archloom.cli.console import open_message_console, open_result_console, print_line
from archloom.core.events import Listener
from archloom.core.lazy_imports import lazy_imports
from archloom.core.progress_display import BAR_LINES, show_progress
from archloom.core.stop_signals import STOP_SIGNALS

with lazy_imports():  # help needs no torch
    import archloom.execution.loop as loop

ResultT = TypeVar("ResultT")


class StopRequest:
    """Whether a signal asked to stop, and which one."""

    def __init__(self) -> None:
        self._signal: int | None = None

    def __call__(self) -> bool:
        return self._signal is not None

    @property
    def exit_code(self) -> int:
        """Return what a shell expects of a process that a signal ended."""
        return 128 + (self._signal or signal.SIGINT)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Ask to stop at the first signal, quit at a second Ctrl-C or SIGTERM.

        The system repeats SIGXCPU every second, and batch systems send SIGTERM some time after SIGUSR1: neither may cut
        the saving short.
        """
        if self._signal is not None:
            if number == signal.SIGINT or number == self._signal == signal.SIGTERM:
                raise KeyboardInterrupt
            return
        self._signal = number
        # past Python's buffers, which the signal may have interrupted, and clear of the lines that the bar redraws
        with suppress(OSError):
            os.write(2, b"\nsaving; press Ctrl-C again to quit at once" + b"\n" * BAR_LINES)


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Let Ctrl-C and other signals ask to stop instead of killing; those that are ignored, as by nohup, stay so."""
    request = StopRequest()
    handled = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, request.handle) for number in handled}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stop_cleanly(command: str, folder: Path) -> Iterator[StopRequest]:
    """Let Ctrl-C ask to stop; print the command that continues in the folder, and exit."""
    hint = f"continue with: archloom {command} {shlex.quote(str(folder))}"
    with stop_on_signals() as stop:
        try:
            yield stop
        except loop.FollowerEnded as ended:
            raise typer.Exit(0) from ended
        except loop.Interrupted as interrupted:
            print_line(f"stopped and saved; {hint}", console=open_message_console())
            raise typer.Exit(stop.exit_code) from interrupted
        except KeyboardInterrupt as interrupted:
            print_line(f"stopped; what was saved before is kept; {hint}", console=open_message_console())
            raise typer.Exit(stop.exit_code) from interrupted


def run_interactively(
    run: Callable[[Listener, Callable[[], bool]], ResultT],
    show: Callable[[ResultT, Console], None],
    *,
    folder: Path,
    quiet: bool,
) -> None:
    """Call `run` with a listener and a stop request, and show its result; or exit at an interruption."""
    with stop_cleanly("resume", folder) as stop, show_progress(open_message_console(), quiet=quiet) as listener:
        result = run(listener, stop)
    show(result, open_result_console())


def note_unless(quiet: bool) -> Callable[[str], None]:
    """Return a function that prints a line, or nothing if the user wants only the result."""
    return lambda line: None if quiet else print_line(line, console=open_message_console())
