"""The script that times recurrent search steps takes public code by an adapter, and times the same function only."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TINY = ["--hidden", "4", "--words", "7", "--columns", "3", "--segment", "3", "--rounds", "1"]
ADAPTER = """
from recurrent_speed import Straightforward

steps = []


class Same(Straightforward):
    def step(self, words, labels, *, weights):
        steps.append((tuple(words.shape), tuple(labels.shape), weights))
        return super().step(words, labels, weights=weights)


class Swapped(Straightforward):  # candidate and gate
    def __init__(self, given):
        super().__init__(given)
        self.start.data = self.start.data.roll(self.start.shape[1] // 2, dims=1)
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "public_adapter.py").write_text(ADAPTER)
    monkeypatch.delitem(importlib.sys.modules, "public_adapter", raising=False)  # type: ignore[attr-defined]
    return importlib.import_module("recurrent_speed")


def test_public_code_takes_turns_with_ours(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    script.main([*TINY, "--public", "public_adapter:Same"])
    printed = capsys.readouterr().out
    assert importlib.import_module("public_adapter").steps == [((3, 3), (9,), True), ((3, 3), (9,), False)]
    rows = [line.split(" weights")[0].strip() for line in printed.splitlines()[-4:]]
    assert rows == ["straightforward", "public", "mixture", "hard path"]
    assert printed.count("x public (median") == 2 and "1 rounds" in printed


def test_another_function_is_not_timed(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "LARGEST_GAP", 1e-6)  # weights of four units are small
    with pytest.raises(SystemExit, match="public computes another function: expected a difference of at most 1e-06"):
        script.main([*TINY, "--public", "public_adapter:Swapped"])


@pytest.mark.parametrize("name", ["no_such_module:make", "public_adapter:make", "public_adapter", ":make"])
def test_an_adapter_that_is_not_there_is_one_line(script: ModuleType, name: str) -> None:
    with pytest.raises(SystemExit, match=f"^--public {name}: "):
        script.main([*TINY, "--public", name])


def test_factors_are_of_both_steps_together(script: ModuleType) -> None:
    times = {
        "straightforward, weights": [0.3],
        "straightforward, architecture": [0.1],
        "public, weights": [0.4, 0.6, 0.8],
        "public, architecture": [0.4, 0.4, 0.2],
        "mixture, weights": [0.1, 0.2, 0.3],
        "mixture, architecture": [0.1, 0.2, 0.2],
    }
    lines = script.write_rows(times)
    assert lines[1].split() == ["public", "weights", "400.0", "ms,", "architecture", "200.0", "ms"]
    assert lines[2].endswith("; 2.00x straightforward (median 1.00x); 3.00x public (median 2.50x)")
