"""The script that builds embedded tables: an interrupted build continues, and isomorphic cells are trained once."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from archloom.benchmarks.digits import DigitsTable
from archloom.benchmarks.strokes import StrokesTable
from archloom.spaces import Architecture

ROOT = Path(__file__).resolve().parents[2]
CELLS = list(StrokesTable.space.enumerate())


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("build_embedded_table")


class FakeTrainer:
    """Score a cell by its row and its seed, in no time; stop after so many trainings."""

    def __init__(self, script: ModuleType, most: int) -> None:
        self._script, self._left = script, most
        self.asked: list[tuple[int, int]] = []

    def __call__(self, *_: Any) -> FakeTrainer:
        return self

    def train(self, cell: Architecture, seed: int) -> Any:
        if not self._left:
            raise KeyboardInterrupt
        self._left -= 1
        position = CELLS.index(cell)
        self.asked.append((position, seed))
        return self._script.Trained(position / 2, position / 2 + seed, 1.0 + seed)


@pytest.fixture
def build(script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    def run(data: str, *, seeds: int, most: int = 1000) -> list[tuple[int, int]]:
        trainer = FakeTrainer(script, most)
        monkeypatch.setattr(script, "Trainer", trainer)
        arguments = ["build", data, "--seeds", str(seeds), "--out", str(tmp_path / "table.json")]
        monkeypatch.setattr(sys, "argv", arguments)
        try:
            script.main()
        except KeyboardInterrupt:
            assert (tmp_path / "table.progress").exists()
        return trainer.asked

    return run


def test_isomorphic_cells_share_the_training_of_the_first(build: Any, tmp_path: Path) -> None:
    assert len(build("strokes", seeds=2)) == 120
    table = StrokesTable(tmp_path / "table.json")
    assert table.scores_by_seed()[[0, 1, 124]].tolist() == [[0.0, 1.0], [0.0, 1.0], [62.0, 63.0]]
    assert table.training_seconds is not None and table.training_seconds[124] == 1.0  # the least of both
    assert not (tmp_path / "table.progress").exists()


def test_every_cell_of_digits_is_trained(build: Any, tmp_path: Path) -> None:
    assert len(build("digits", seeds=1)) == 125
    assert DigitsTable(tmp_path / "table.json").scores_by_seed("valid")[3].tolist() == [1.5]


def test_an_interrupted_build_continues(build: Any, tmp_path: Path) -> None:
    first = build("strokes", seeds=2, most=70)
    assert not (tmp_path / "table.json").exists()
    second = build("strokes", seeds=2)
    assert (len(first), len(second)) == (70, 50)
    assert not set(first) & set(second)
    assert StrokesTable(tmp_path / "table.json").scores_by_seed()[124].tolist() == [62.0, 63.0]


def test_more_seeds_extend_a_table(build: Any, tmp_path: Path) -> None:
    build("strokes", seeds=2)
    assert {seed for _, seed in build("strokes", seeds=3)} == {2}
    assert StrokesTable(tmp_path / "table.json").scores_by_seed()[124].tolist() == [62.0, 63.0, 64.0]


def test_trainings_of_another_protocol_are_refused(build: Any, tmp_path: Path) -> None:
    build("strokes", seeds=1, most=5)
    with pytest.raises(SystemExit, match=r"table\.progress has trainings of another protocol; delete it"):
        build("digits", seeds=1)
