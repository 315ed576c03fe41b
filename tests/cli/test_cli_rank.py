"""`archloom rank`: sentences for one run, a table for several, files, and a stop in the middle."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from archloom.benchmarks.digits import DigitsTable
from archloom.searches import rank_correlation as engine
from archloom.searches import ranking
from archloom.searches.run import search

Archloom = Callable[..., Any]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "RESAMPLES", 50)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Weights that know the table: what they are asked is noted; the fourth question of a test may do more."""
    table, seen = DigitsTable(), []

    class Paths:
        space = table.space

        def __call__(self, architecture: Any) -> float:
            seen.append(architecture)
            return table.query(architecture, "digits")

    monkeypatch.setattr(ranking, "trained_paths", lambda run, build_search, **options: Paths())
    return seen


def words(text: str) -> str:
    return " ".join(text.split())


def test_one_run_is_described_in_sentences(archloom: Archloom, finished_run: Path) -> None:
    finished = archloom("rank", finished_run, "--samples", "6", "--images", "32")
    assert finished.code == 0
    assert "gdas on nb201_mini, digits, seed 0" in finished.out
    assert "(6 architectures, test accuracy on digits)" in words(finished.out)
    assert "The architecture that they rank first has" in words(finished.out)


def test_weights_that_know_the_order_rank_very_well(archloom: Archloom, finished_run: Path, asked: list[Any]) -> None:
    said = words(archloom("rank", finished_run, "--samples", "80").out)
    assert "Shared weights rank architectures very well: Kendall's tau 1.00, 95 % CI 1.00 to 1.00" in said
    assert "in the table's top tenth: Kendall's tau 1.00" in said
    assert len(asked) == 80


def test_several_runs_are_rows_and_files_hold_all(
    archloom: Archloom, finished_run: Path, asked: list[Any], tmp_path: Path
) -> None:
    other = shutil.copytree(finished_run, tmp_path / "other")
    files = ("--out", "rank.svg", "--out", "rank.json", "--out", "rank.csv")
    finished = archloom("rank", finished_run, other, "--samples", "6", *files)
    assert finished.code == 0
    assert len([line for line in finished.out.splitlines() if line.startswith("1.00  1.00 to")]) == 2
    assert finished.out.splitlines()[-3:] == ["rank.svg", "rank.json", "rank.csv"]
    figures = json.loads(Path("rank.json").read_text())
    assert [run["evaluated"] for run in figures] == [6, 6]
    rows = list(csv.DictReader(Path("rank.csv").read_text().splitlines()))
    assert len(rows) == 12
    assert float(rows[0]["table_accuracy"]) == pytest.approx(figures[0]["architectures"][0]["table"])
    assert ElementTree.parse("rank.svg").getroot().tag.endswith("svg")


def test_ctrl_c_keeps_what_was_evaluated(
    archloom: Archloom, finished_run: Path, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ranking.score_rows

    def interrupted(*arguments: Any) -> Any:
        for one in real(*arguments):
            if len(asked) == 6:
                os.kill(os.getpid(), signal.SIGINT)
            yield one

    monkeypatch.setattr(ranking, "score_rows", interrupted)
    finished = archloom("rank", finished_run, finished_run, "--samples", "20", "--out", "kept.json")
    assert finished.code == 130
    assert f"these are 6 of 20 architectures of {finished_run}; runs that were not begun: 1" in words(finished.err)
    assert json.loads(Path("kept.json").read_text())[0]["evaluated"] == 6


def test_nothing_is_evaluated_for_files_that_cannot_be_written(
    archloom: Archloom, finished_run: Path, asked: list[Any]
) -> None:
    finished = archloom("rank", finished_run, "--out", "rank.pdf", "--out", "nowhere/rank.svg")
    assert finished.code == 2
    assert finished.lines == [
        "error: --out must end in .svg or .json or .csv, got 'rank.pdf'",
        "error: --out nowhere/rank.svg: there is no folder nowhere",
    ]
    assert asked == []


def test_a_black_box_run_is_one_line(archloom: Archloom, tmp_path: Path, without_report: None) -> None:
    search("nb201_mini", "random_search", "digits", out=tmp_path / "box", settings={"search": {"trials": 2}})
    finished = archloom("rank", tmp_path / "box")
    assert (finished.code, len(finished.lines)) == (2, 1)
    assert "has no shared weights: its strategy, random_search, trains none" in finished.err


def test_no_table_is_one_line(archloom: Archloom, unfinished_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking.SearchSpec, "find_table", lambda *arguments: None)
    finished = archloom("rank", unfinished_run)
    assert (finished.code, len(finished.lines)) == (2, 1)
    assert "no benchmark table covers" in finished.err
