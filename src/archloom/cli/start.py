"""The first lines of the `archloom` script: signals are handled before the imports, which take a moment."""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType

from archloom.core.stop_signals import STOP_SIGNALS

_started: float | None = None  # when the script began; None where Python code calls a command


def seconds_since_start() -> float:
    """Return the seconds since the script began, which count against a budget: imports can be slow."""
    return 0.0 if _started is None else time.perf_counter() - _started


def run() -> None:
    """Run the command line; a signal before a run begins ends it with one line, since there is nothing to save."""
    global _started
    _started = time.perf_counter()
    for number in STOP_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, leave)
    from archloom.cli.main import run as run_commands

    run_commands(sys.argv[1:])


def leave(number: int, frame: FrameType | None) -> None:
    """End the process as a shell expects of a signal, from within any import and without a traceback."""
    os.write(2, b"stopped; no run was in progress\n")
    os._exit(128 + number)
