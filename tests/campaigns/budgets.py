"""Run searches and retrainings with a budget beside processes that keep every core busy; compare the clock with it.

    python tests/campaigns/budgets.py

The time is that of the whole command, from its start to its end, as a user sees it. Burners are processes that only
count; some begin when a command has planned already, so its plan is too fast. A command that takes more than a tenth
longer than its budget is a failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from archloom.core.durations import parse_duration

LONGER = 1.1  # times the budget is a failure
BURN = "while True: pass"
CELL = "|nor_conv_3x3~0|+|nor_conv_3x3~0|skip_connect~1|+|skip_connect~0|nor_conv_1x1~1|nor_conv_3x3~2|"


class Load(NamedTuple):
    """What runs beside a command."""

    name: str
    burners: int  # per core
    after: float = 0.0  # seconds, of which the budget's share is given


class Timed(NamedTuple):
    """How long a command took, and its lines with the seconds after which each was printed."""

    seconds: float
    lines: list[str]


LOADS = (
    Load("idle", 0),
    Load("shared", 1),
    Load("busy", 2),
    Load("busy after a quarter", 2, after=0.25),
    Load("crowded", 4),
)
COMMANDS: dict[str, list[str]] = {
    "search strokes": ["search", "--space", "nb201", "--data", "strokes"],
    "search cifar10": ["search", "--space", "nb201", "--data", "cifar10"],
    "search cifar10 darts": ["search", "--space", "darts", "--strategy", "gdas", "--data", "cifar10"],
    "retrain digits": ["retrain", CELL, "--data", "digits", "--space", "nb201"],
    "retrain strokes": ["retrain", CELL, "--data", "strokes", "--space", "nb201"],
    "retrain cifar10": ["retrain", CELL, "--data", "cifar10", "--space", "nb201"],
}


@contextmanager
def burning(count: int, after: float) -> Iterator[None]:
    """Keep so many processes busy, which begin after some seconds."""
    with ExitStack() as stack:
        for _ in range(count):
            code = f"import time; time.sleep({after})\n{BURN}"
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", code]))
            stack.callback(process.kill)
        yield


def time_command(arguments: list[str], folder: Path, load: Load, budget: str, threads: str | None) -> Timed:
    """Return the seconds of a command and what it printed when; raise what it says if it fails."""
    command = [sys.executable, "-m", "archloom", *arguments, "--budget", budget, "--out", str(folder)]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment |= {} if threads is None else {"OMP_NUM_THREADS": threads}
    cores = len(os.sched_getaffinity(0))
    with burning(load.burners * cores, load.after * parse_duration(budget)):
        start = time.monotonic()
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        lines = [f"{time.monotonic() - start:6.1f} s  {line.rstrip()}" for line in process.stderr]
        code = process.wait()
        seconds = time.monotonic() - start
    if code:
        raise RuntimeError(f"it ended with {code}: {' '.join(lines[-3:])}")
    return Timed(seconds, lines)


def main() -> int:
    """Run every command under every load; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="1m")
    parser.add_argument("--command", action="append", choices=list(COMMANDS), help="may be repeated; default: all")
    parser.add_argument("--load", action="append", choices=[load.name for load in LOADS], help="default: all")
    parser.add_argument("--threads", help="OMP_NUM_THREADS of the commands; default: as torch chooses")
    options = parser.parse_args()
    failures = tries = 0
    most, root = LONGER * parse_duration(options.budget), Path(tempfile.mkdtemp(prefix="archloom-budgets-"))
    try:
        for load in (one for one in LOADS if one.name in (options.load or [one.name])):
            for name in options.command or COMMANDS:
                tries += 1
                folder = root / str(tries)
                seconds, lines = time_command(COMMANDS[name], folder, load, options.budget, options.threads)
                failures += seconds > most
                late = " TOO LONG" if seconds > most else ""
                around = ", ".join(f"{value:.1f}" for value in os.getloadavg())
                print(f"{name}, {load.name}: {seconds:.1f} s of {options.budget} (load {around}){late}", flush=True)
                if late:
                    print(*lines, sep="\n", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(f"budgets: {tries} tries, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
