"""What a shell completes, asked as a shell asks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from archloom.cli.completion import (
    complete_data,
    complete_pipeline,
    complete_run,
    complete_search,
    complete_space,
    complete_strategy,
)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("runs/first", "runs/run-pictures", "pictures/cat", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "runs" / "first" / "config.toml").write_text("")
    (tmp_path / "runs" / "run-pictures" / "pipeline.toml").write_text("")
    (tmp_path / "mine.npz").touch()


def test_names_and_paths_are_completed() -> None:
    assert complete_strategy("gd") == ["gdas"]
    assert complete_space("nb201_m") == ["nb201_mini"]
    assert complete_data("cifar") == ["cifar10", "cifar100"]
    assert complete_data("mi") == ["mine.npz"]
    assert complete_data("pic") == ["pictures/"]
    assert "cifar10/gdas" in complete_search("cifar10/")
    assert complete_pipeline("fo") == ["folder"]


def test_run_folders_are_completed_old_and_new() -> None:
    assert complete_run("") == ["runs/first", "runs/run-pictures"]
    assert complete_run("runs/r") == ["runs/run-pictures"]
    assert complete_run("pic") == ["pictures/"]  # towards a run elsewhere


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("archloom search --strategy gd", "gdas"),
        ("archloom resume runs/f", "runs/first"),
        ("archloom run fol", "folder"),
        ("archloom search cifar10/gd", "cifar10/gdas"),
        ("archloom predict runs/r", "runs/run-pictures"),
        ("archloom retrain runs/f", "runs/first"),
    ],
)
def test_a_shell_gets_the_completion_without_torch(words: str, expected: str) -> None:
    code = (
        "import sys\nfrom archloom.cli.main import app\n"
        "try:\n    app(prog_name='archloom')\nfinally:\n    assert 'torch' not in sys.modules\n"
    )
    asked = {"_ARCHLOOM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    ended = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert expected in ended.stdout.split(), ended.stderr
    assert "AssertionError" not in ended.stderr
