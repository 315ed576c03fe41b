"""`archloom run`: what is printed, and that mistakes are lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archloom.core.events import Failure
from archloom.execution.executors import ProcessExecutor, SerialExecutor
from archloom.pipelines import run as module

Archloom = Callable[..., Any]
FILE = """
title = "Tiny"
searches = 2
retrainings = 1

[search]
space.name = "nb201_mini"
data = {train_images = 64, valid_images = 64}
search = {epochs = 1, batch_size = 32, evaluation_images = 32, random_baseline_samples = 2}

[retrain]
recipe = "nb201_12"
space.cells_per_stage = 1
network.channels = 4
data = {split = "random", train_images = 64, valid_images = 64}
training = {epochs = 1, batch_size = 32}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(FILE)
    return path


def test_from_a_file_to_a_model_and_back(archloom: Archloom, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ProcessExecutor", lambda workers: SerialExecutor())
    monkeypatch.setattr(module, "write_search_report", lambda run: run.report_path)
    monkeypatch.setattr("archloom.retrainings.run.write_retrain_report", lambda path, images=None: path)
    listed = archloom("run", file, "--dry-run")
    assert listed.code == 0 and "searches/seed-1  not begun" in listed.out
    assert "then 1 retrainings of the best" in listed.out and "folder runs/run-tiny" in listed.out
    done = archloom("run", file)
    assert done.code == 0, done.err
    assert "searching: 2 runs" in done.err and "training from scratch: 1 run" in done.err
    assert "(picked)" in done.out and "report: runs/run-tiny/report.html" in done.out
    assert "try it: archloom predict runs/run-tiny/retrainings/search-" in done.out
    again = archloom("run", "runs/run-tiny", "--quiet")
    assert (again.code, again.out, again.err) == (0, done.out, "")
    changed = archloom("run", file, "--set", "search.search.epochs=2")
    assert changed.code == 2 and "was begun with search.epochs = 1, now it is 2" in changed.lines[-1]


def test_mistakes_are_lines(archloom: Archloom, file: Path) -> None:
    assert archloom("run", "frst").lines[0].startswith("error: no pipeline 'frst'; did you mean 'run/first'?")
    assert archloom("run", file, "--set", "nonsense").lines == ["error: --set needs section.name=value, got 'nonsense'"]
    assert archloom("run", file, "--export", "onx", "--dry-run").lines == [
        "error: export: unknown format 'onx'; did you mean 'onnx'?"
    ]
    missing = archloom("run", "folder", "--path", "no_such_folder")
    assert missing.code == 2 and "no_such_folder" in missing.lines[-1] and missing.lines[-1].startswith("error: ")
    unsaid = archloom("run", "folder")
    assert unsaid.code == 2 and unsaid.lines[-1].startswith("error: ")


def test_failures_are_printed_and_the_exit_code_is_one(
    archloom: Archloom, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(executor: Any, jobs: Any, **options: Any) -> dict[str, Failure]:
        return {job.name: Failure("no memory") for job in jobs}

    monkeypatch.setattr(ProcessExecutor, "run", failing)
    done = archloom("run", file)
    assert done.code == 1 and "failed: seed-1: no memory" in done.out
