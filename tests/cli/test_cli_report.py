"""`archloom report` of finished and unfinished runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_a_report_of_an_unfinished_run_is_written(archloom: Callable[..., Any], unfinished_run: Path) -> None:
    (unfinished_run / "report.html").unlink()
    finished = archloom("report", unfinished_run)
    assert (finished.code, finished.out) == (0, f"{unfinished_run}/report.html\n")
    assert "<html" in (unfinished_run / "report.html").read_text()


def test_a_report_can_be_written_elsewhere(archloom: Callable[..., Any], finished_run: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in finished_run.rglob("*") if path.is_file()}
    finished = archloom("report", finished_run, "--out", tmp_path / "pages")
    assert (finished.code, finished.out) == (0, f"{tmp_path}/pages/report.html\n")
    assert (tmp_path / "pages/report.html").read_text() == (finished_run / "report.html").read_text()
    assert (tmp_path / "pages/cell.svg").is_file()
    assert before == {path: path.read_bytes() for path in finished_run.rglob("*") if path.is_file()}


def test_a_folder_that_is_no_run_is_a_line(archloom: Callable[..., Any], tmp_path: Path) -> None:
    finished = archloom("report", "nothing")
    assert finished.code == 2
    assert finished.lines == ["error: no run at nothing: config.toml is missing"]
