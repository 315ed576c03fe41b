"""The first lines of the `archloom` script: signals are handled before the imports, which take a moment."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from archloom.core.stop_signals import STOP_SIGNALS

LEAST_SHARE = 0.05  # of a core that a starting process is taken to get
_started: float | None = None  # when the process began; None where Python code calls a command


def seconds_since_start() -> float:
    """Return the seconds since the process began, which count against a budget: imports can be slow."""
    return 0.0 if _started is None else time.perf_counter() - _started


def run() -> None:
    """Run the command line; a signal before a run begins ends it with one line, since there is nothing to save."""
    global _started
    _started = time.perf_counter() - read_age()
    for number in STOP_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, leave)
    from archloom.cli.main import run as run_commands

    run_commands(sys.argv[1:])


def read_age() -> float:
    """Return how many seconds ago the system started this process: Python needs some of them; 0 where it is unknown.

    A shell may become this process (`sh -c "make && archloom ..."`), and its waiting is not ours: Python has had at
    least a share of a core.
    """
    try:
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        begun = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # in seconds since the system started
        return max(0.0, min(time.clock_gettime(time.CLOCK_BOOTTIME) - begun, time.process_time() / LEAST_SHARE))
    except (OSError, ValueError, IndexError, AttributeError):  # not Linux
        return 0.0


def leave(number: int, frame: FrameType | None) -> None:
    """End the process as a shell expects of a signal, from within any import and without a traceback."""
    os.write(2, b"stopped; no run was in progress\n")
    os._exit(128 + number)
