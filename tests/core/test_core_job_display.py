"""Progress of many jobs, in a log and in a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from archloom.core.events import Failure, JobEnded, JobProgressed, JobStarted
from archloom.core.job_display import Bars, Log


def test_a_log_has_a_line_for_every_so_many_and_for_every_failure() -> None:
    text = io.StringIO()
    log = Log(Console(file=text, width=200), total=100)
    for number in range(100):
        log(JobProgressed(f"a-{number}", 0.5))
        log(JobEnded(f"a-{number}", failure=Failure("bad") if number == 4 else None, retrying=number == 4))
    log(JobEnded("a-4"))
    lines = text.getvalue().splitlines()
    assert "a-4: failed, retrying: bad (4 of 100)" in lines
    assert len(lines) == 1 + 33 + 1 and lines[-1] == "a-4: finished (100 of 100)"


def test_bars_show_what_runs_and_what_is_done() -> None:
    text = io.StringIO()
    console = Console(file=text, width=100)
    bars = Bars(console, total=5, clock=iter([0.0, 65.0]).__next__)
    bars(JobStarted("b-0"))
    bars(JobStarted("a-1"))
    bars(JobProgressed("a-1", 0.25))
    bars(JobEnded("b-0"))
    bars(JobEnded("c-0", failure=Failure("bad"), retrying=True))
    console.print(bars.render())
    lines = text.getvalue().splitlines()
    assert lines[0] == "c-0: failed, retrying: bad"
    assert lines[1].startswith("1 of 5") and "1:05 elapsed" in lines[1]
    assert lines[2].startswith("a-1") and "25 %" in lines[2]
    assert len(lines) == 3
