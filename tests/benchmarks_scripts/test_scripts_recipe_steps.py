"""The script that times steps of recipes: which steps count, on a clock of our own."""

from __future__ import annotations

import importlib
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Recorded:
    """In the place of a search: notes its turns."""

    def __init__(self, name: str, turns: list[str]) -> None:
        self._name, self._turns = name, turns

    def advance(self) -> None:
        self._turns.append(self._name)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("recipe_steps")


def test_recipes_alternate_after_a_warm_up_step(script: ModuleType) -> None:
    turns: list[str] = []
    ticks = count()
    searches = {name: Recorded(name, turns) for name in "ab"}
    seconds = script.time_steps(searches, rounds=2, clock=lambda: next(ticks))
    assert turns == ["a", "b"] * 3
    assert seconds == {"a": [1, 1], "b": [1, 1]}


def test_recipe_is_built_and_its_step_is_printed(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    script.main(["first", "--rounds", "1"])
    assert capsys.readouterr().out.startswith("first: ")
