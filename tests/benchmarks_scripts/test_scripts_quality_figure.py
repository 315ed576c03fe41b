"""The picture of the README: drawn from measured runs alone, and plainly empty without any."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADER = "strategy,seed,minutes,rank,test_accuracy\n"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("quality_figure")
    monkeypatch.setattr(module, "SOURCE", tmp_path / "quality.csv")
    monkeypatch.setattr(module, "PICTURE", tmp_path / "quality.svg")
    return module


def test_without_runs_the_picture_says_so(script: ModuleType) -> None:
    script.SOURCE.write_text(HEADER)
    script.main()
    assert "not measured yet" in script.PICTURE.read_text()


@pytest.mark.parametrize(("minutes", "label"), [("10", "strategy, 10 minutes each"), ("8", "minutes of search")])
def test_runs_are_drawn_with_their_median_rank(script: ModuleType, minutes: str, label: str) -> None:
    script.SOURCE.write_text(f"{HEADER}gibbs,0,10,36,94.0\ngibbs,1,10,62,93.9\nrandom_search,0,{minutes},500,93.4\n")
    script.main()
    drawn = script.PICTURE.read_text()
    assert drawn.startswith("<svg") and "xmlns=" in drawn.split(">")[0] and label in drawn
    assert "gibbs: median rank 49, 2 seeds" in drawn and "random_search: median rank 500" in drawn


def test_a_damaged_file_is_one_line(script: ModuleType) -> None:
    script.SOURCE.write_text("strategy,seed\ngibbs,0\n")
    with pytest.raises(SystemExit, match="must have the columns strategy, seed, minutes, rank, test_accuracy"):
        script.main()


def test_the_shipped_picture_is_that_of_the_shipped_runs() -> None:
    rows = (ROOT / "docs" / "results" / "quality.csv").read_text().splitlines()
    drawn = (ROOT / "docs" / "images" / "quality.svg").read_text()
    assert rows[0] == HEADER.strip()
    assert ("not measured yet" in drawn) == (len(rows) == 1)
    assert all(row.split(",")[0] in drawn for row in rows[1:])
