"""`archloom compare`: one real comparison in other processes, and what is shown of it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archloom.core.errors import ArchloomError
from archloom.core.events import Failure, JobEnded, JobStarted
from archloom.execution.process_executor import ProcessExecutor

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
    unknown = archloom("compare", "no_such").lines[0]
    assert unknown.startswith("error: no comparison 'no_such'; known: compare/darts_short, compare/first, ")
    assert archloom("compare", file, "--set", "nonsense").lines == [
        "error: --set needs section.name=value, got 'nonsense'"
    ]
    assert archloom("compare", file, "--only", "fww", "--dry-run").lines == [
        "error: no entry 'fww'; did you mean 'few'?"
    ]
    assert archloom("search", "compare/first").lines == [
        "error: 'compare/first' is a comparison of several searches: archloom compare compare/first"
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


def test_an_error_of_the_comparison_is_one_line(archloom: Archloom, file: Path, monkeypatch: Any) -> None:
    def refused(*arguments: Any, **options: Any) -> dict[str, str]:
        raise ArchloomError("a worker process could not start")

    monkeypatch.setattr(ProcessExecutor, "run", refused)
    done = archloom("compare", file, "-q")
    assert (done.code, done.lines) == (2, ["error: a worker process could not start"])
