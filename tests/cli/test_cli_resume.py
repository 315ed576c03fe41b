"""`archloom resume`: the same end as a run that was never interrupted, and word of whatever was amiss."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Archloom = Callable[..., Any]
FIRST_EDITION = Path(__file__).parents[1] / "data_files" / "first_edition"
TIMED = ("seconds", "images_per_second", "memory_mb")


def result_of(run: Path) -> dict[str, Any]:
    """What was found, without what depends on the clock."""
    content: dict[str, Any] = json.loads((run / "architecture.json").read_text())
    return {name: value for name, value in content.items() if name != "run"}


def metrics_of(run: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in record.items() if name not in TIMED} for record in records]


def test_after_ctrl_c_a_resumed_run_ends_as_one_that_was_not_interrupted(
    archloom: Archloom, tiny: tuple[str, ...], without_report: None, tmp_path: Path
) -> None:
    options = ["--space", "nb201_mini", "--epochs", "20", *tiny]
    process = subprocess.Popen(
        [sys.executable, "-m", "archloom.cli.main", "search", "--out", "stopped", *options],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("epoch 1/"):
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130, err
    assert "saving; press Ctrl-C again to quit at once" in err
    assert err.splitlines()[-1] == "stopped and saved; continue with: archloom resume stopped"
    assert "Traceback" not in err
    assert out == ""
    assert not (tmp_path / "stopped" / "architecture.json").exists()
    assert (tmp_path / "stopped" / "report.html").is_file()

    resumed = archloom("resume", "stopped", "--quiet")
    assert (resumed.code, resumed.err) == (0, "")
    assert archloom("search", "--out", "whole", "--quiet", *options).code == 0
    assert result_of(tmp_path / "stopped") == result_of(tmp_path / "whole")
    assert metrics_of(tmp_path / "stopped") == metrics_of(tmp_path / "whole")


def test_a_complete_run_shows_its_result_again(archloom: Archloom, finished_run: Path) -> None:
    before = (finished_run / "architecture.json").read_bytes()
    finished = archloom("resume", finished_run)
    assert finished.code == 0
    assert finished.lines == [f"{finished_run} is complete; this is its result"]
    assert result_of(finished_run)["text"] in finished.out.splitlines()
    assert (finished_run / "architecture.json").read_bytes() == before


def test_a_damaged_checkpoint_falls_back_and_says_so(
    archloom: Archloom, unfinished_run: Path, kept_run: Path, without_report: None
) -> None:
    older, newest = sorted((unfinished_run / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-100])
    finished = archloom("resume", unfinished_run)
    assert finished.code == 0
    assert finished.lines[0].startswith(f"warning: checkpoint {newest.name} is damaged")
    assert finished.lines[0].endswith(f"falling back to {older.name}")
    assert finished.lines[1].startswith("epoch 2/2")
    assert result_of(unfinished_run) == result_of(kept_run)


def test_what_is_no_run_is_a_line(archloom: Archloom, finished_run: Path, tmp_path: Path) -> None:
    finished = archloom("resume", "finishd")
    assert finished.code == 2
    assert finished.lines == ["error: no run at finishd: config.toml is missing; did you mean 'finished'?"]


def test_jobs_of_a_comparison_are_resumed_where_the_user_says(
    archloom: Archloom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    folder = tmp_path / "comparison"
    shutil.copytree(FIRST_EDITION / "comparison", folder)
    finished = archloom("resume", str(folder), "--on", "ray")
    assert finished.code == 2 and "RAY_ADDRESS names none" in finished.err
    finished = archloom("resume", str(folder), "--devices", "2")
    assert finished.code == 2 and "--devices is for one search or retraining" in finished.err
