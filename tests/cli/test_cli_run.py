"""`archloom run`: what is printed, and that mistakes are lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from archloom.core.events import Failure
from archloom.execution.executors import SerialExecutor
from archloom.execution.process_executor import ProcessExecutor
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
    monkeypatch.setattr(module, "make_executor", lambda *_, **__: SerialExecutor())
    monkeypatch.setattr(module, "write_search_report", lambda run, **options: run.report_path)
    monkeypatch.setattr("archloom.retrainings.run.write_retrain_report", lambda path, **options: path)
    listed = archloom("run", file, "--dry-run")
    assert listed.code == 0 and "searches/seed-1  not begun" in listed.out
    assert "then 1 retraining of the best by the recipe nb201_12" in listed.out and "folder runs/run-tiny" in listed.out
    done = archloom("run", file)
    assert done.code == 0, done.err
    assert "searching: 2 runs" in done.err and "training from scratch: 1 run" in done.err
    assert "(picked)" in done.out and "report: runs/run-tiny/report.html" in done.out
    assert "try it: archloom predict runs/run-tiny IMAGES..." in done.out
    again = archloom("run", "runs/run-tiny", "--quiet")
    assert (again.code, again.out, again.err) == (0, done.out, "")
    for more in ((), ("--dry-run",)):
        changed = archloom("run", file, "--set", "search.search.epochs=2", *more)
        assert changed.code == 2 and "was begun with search.epochs = 1, now it is 2" in changed.lines[-1]
    resumed = archloom("resume", "runs/run-tiny", "--quiet")
    assert (resumed.code, resumed.out) == (0, done.out)
    check_folder_is_an_argument(archloom)


def check_folder_is_an_argument(archloom: Archloom) -> None:
    """The folder of a pipeline is an argument of every command that takes a run."""
    Path("runs/run-tiny/report.html").unlink()
    written = archloom("report", "runs/run-tiny")
    assert (written.code, written.out.strip()) == (0, "runs/run-tiny/report.html")
    page = Path("runs/run-tiny/report.html").read_text()
    assert 'id="architecture"' in page and 'class="cells"' in page and 'id="curves"' in page
    assert "a dot per retraining" not in page  # one model is no chart
    Image.new("L", (16, 16), 90).save("picture.png")
    labelled = archloom("predict", "runs/run-tiny", "picture.png")
    assert labelled.code == 0, labelled.err
    assert labelled.lines[0].startswith("using runs/run-tiny/retrainings/search-")
    assert "the only model in runs/run-tiny (validation accuracy" in labelled.lines[0]
    exported = archloom("export", "runs/run-tiny", "--format", "standalone")
    assert exported.code == 0 and exported.lines[0].startswith("using runs/run-tiny/retrainings/search-")


def test_a_log_has_a_line_per_phase_and_epoch_with_the_time_left(
    archloom: Archloom, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "make_executor", lambda *_, **__: SerialExecutor())
    monkeypatch.setattr(module, "write_search_report", lambda run, **options: run.report_path)
    monkeypatch.setattr("archloom.retrainings.run.write_retrain_report", lambda path, **options: path)
    done = archloom("run", file, "--set", "search.search.epochs=2", "--set", "searches=1")
    assert done.code == 0, done.err
    lines = [line for line in done.lines if line.startswith(("seed-0: epoch", "search-0-seed-0: epoch"))]
    assert [line.split("  ")[0] for line in lines] == [
        "seed-0: epoch 1/2",
        "seed-0: epoch 2/2",
        "search-0-seed-0: epoch 1/1",
    ]
    assert all(re.search(r"\d+:\d\d elapsed, \d+:\d\d left$", line) for line in lines)


def test_a_dry_run_of_pictures_says_what_the_run_would_do(archloom: Archloom, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are taken to need no time. Few images get 70 % of the budget for training. Nothing is written."""
    monkeypatch.setattr("archloom.searches.plan.time_steps", lambda *_, **__: 1e-4)
    monkeypatch.setattr("archloom.retrainings.auto.seconds_per_image", lambda *_, **__: 1e-2)
    for name in ("cat", "dog"):
        for number in range(12):
            place = Path("pictures", name, f"{number}.png")
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (16, 16), (number * 20, 90, 10 if name == "cat" else 200)).save(place)
    planned = archloom("run", "pictures/", "--budget", "2m", "--dry-run")
    assert planned.code == 0, planned.err
    assert "final network: in 84s, ResNet block can be trained with" in planned.err
    assert "finalist race: " in planned.err
    assert "then 1 retraining of the best by the recipe auto, 84s each; export: onnx" in planned.out
    assert not Path("runs").exists()


def test_mistakes_are_lines(archloom: Archloom, file: Path) -> None:
    assert archloom("run", "frst").lines[0].startswith("error: no pipeline 'frst'; did you mean 'run/first'?")
    assert archloom("run", file, "--set", "nonsense").lines == ["error: --set needs section.name=value, got 'nonsense'"]
    assert archloom("run", file, "--export", "onx", "--dry-run").lines == [
        "error: export: unknown format 'onx'; did you mean 'onnx'?"
    ]
    twice = archloom("run", "digits", "--data", "strokes", "--dry-run")
    assert twice.lines == ["error: data must be named once, got 'digits' and --data 'strokes'"]
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
