"""`archloom compare`: one real comparison in other processes, and what is shown of it."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from archloom.cli.compare import Bars, Log
from archloom.core.errors import ArchloomError
from archloom.core.events import Failure, JobEnded, JobProgressed, JobStarted
from archloom.execution.executors import ProcessExecutor

Archloom = Callable[..., Any]
FILE = """
title = "Few trials and many"
seeds = "0-1"
against = "many"

[all]
space.name = "nb201_mini"
strategy.name = "random_search"

[entry.few]
search.trials = 2

[entry.many]
search.trials = 9
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "trials.toml"
    path.write_text(FILE)
    return path


def test_from_a_file_to_a_table_and_back(archloom: Archloom, file: Path, tmp_path: Path) -> None:
    listed = archloom("compare", file, "--dry-run", "--seeds", "0")
    assert listed.code == 0 and "few-0   not begun" in listed.out
    assert "2 not begun; folder runs/compare-trials" in listed.out
    done = archloom("compare", file, "--jobs", "1")
    assert done.code == 0, done.err
    assert "4 searches, 0 of them finished; folder runs/compare-trials" in done.err
    assert "few-1: finished (2 of 4)" in done.err
    folder = tmp_path / "runs" / "compare-trials"
    assert {path.name for path in (folder / "runs").iterdir()} == {"few-0", "few-1", "many-0", "many-1"}
    assert "few    2     " in done.out
    assert "at matched cost" in done.out.replace("\n       ", "") and "Verdict against many" in done.out
    assert [entry["finished"] for entry in json.loads((folder / "comparison.json").read_text())["entries"]] == [2, 2]
    assert "<svg" in (folder / "comparison.html").read_text()
    again = archloom("compare", "runs/compare-trials", "--quiet")
    assert (again.code, again.out) == (0, done.out) and again.err == ""
    changed = archloom("compare", file, "--set", "search.trials=3")
    assert changed.code == 2
    assert changed.lines[-1].startswith("error: runs/compare-trials/runs/many-1 was begun with search.trials = 9, now")


def test_mistakes_are_lines(archloom: Archloom, file: Path) -> None:
    wrong = archloom("compare", file, "--set", "strategy.foo=1", "--seeds", "x")
    assert wrong.code == 2 and all(line.startswith("error: entry ") for line in wrong.lines)
    assert archloom("compare", "no_such").lines[0].startswith("error: no comparison 'no_such'; known: compare/first")
    assert archloom("compare", file, "--set", "nonsense").lines == [
        "error: --set needs section.name=value, got 'nonsense'"
    ]
    assert archloom("compare", file, "--only", "fww", "--dry-run").lines == [
        "error: no entry 'fww'; did you mean 'few'?"
    ]
    assert archloom("search", "compare/first").lines == [
        "error: 'compare/first' is a comparison of several experiments: archloom compare compare/first"
    ]


def failing(executor: Any, jobs: Any, *, emit: Any, **options: Any) -> dict[str, Failure]:
    for job in jobs:
        emit(JobStarted(job.name))
        emit(JobEnded(job.name, failure=Failure("no memory")))
    return {job.name: Failure("no memory") for job in jobs}


def test_failed_searches_are_printed_and_the_exit_code_is_one(
    archloom: Archloom, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessExecutor, "run", failing)
    done = archloom("compare", file)
    assert done.code == 1
    assert "few-0: failed: no memory (1 of 4)" in done.err
    assert "failed: many-1: no memory" in done.out and "0 of 2, 2 failed" in done.out


@pytest.mark.parametrize(("signals", "said"), [(1, "stopped and saved"), (2, "stopped; what was saved before is kept")])
def test_signals(signals: int, said: str, archloom: Archloom, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(executor: Any, jobs: Any, *, stop: Any, **options: Any) -> dict[str, Failure]:
        for _ in range(signals):
            os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        return {}

    monkeypatch.setattr(ProcessExecutor, "run", stopped)
    done = archloom("compare", file)
    assert done.code == 130
    assert f"{said}; continue with: archloom compare runs/compare-trials" in done.err


# --- progress


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
    console.print(bars.drawn())
    lines = text.getvalue().splitlines()
    assert lines[0] == "c-0: failed, retrying: bad"
    assert lines[1].startswith("1 of 5") and "1:05 elapsed" in lines[1]
    assert lines[2].startswith("a-1") and "25 %" in lines[2]
    assert len(lines) == 3


def test_an_error_of_the_comparison_is_one_line(archloom: Archloom, file: Path, monkeypatch: Any) -> None:
    def refused(*arguments: Any, **options: Any) -> dict[str, str]:
        raise ArchloomError("a worker process could not start")

    monkeypatch.setattr(ProcessExecutor, "run", refused)
    done = archloom("compare", file, "-q")
    assert (done.code, done.lines) == (2, ["error: a worker process could not start"])
