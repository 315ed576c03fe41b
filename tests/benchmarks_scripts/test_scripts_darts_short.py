"""The script that trains cells of the DARTS space: what it reads, and what it makes of accuracies."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("darts_short")


def trained(script: ModuleType, group: str, name: str, *accuracies: float):
    return script.TrainedCell(script.Cell(group, name, "text"), accuracies, 1000)


def test_cells_come_from_finished_searches_of_a_comparison(script, tmp_path):
    for name in ("pc_darts-0", "random-1", "gdas-0"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    for name in ("pc_darts-0", "random-1"):
        (tmp_path / "runs" / name / "architecture.json").write_text(json.dumps({"text": f"cell of {name}"}))
    found = script.found_cells(tmp_path)
    assert [(cell.group, cell.name, cell.text) for cell in found] == [
        ("pc_darts", "pc_darts-0", "cell of pc_darts-0"),
        ("random", "random-1", "cell of random-1"),
    ]


def test_mean_and_spread_are_over_training_seeds(script):
    one = trained(script, "random", "random-0", 60.0, 62.0)
    assert (one.mean, one.spread) == (61.0, pytest.approx(2**0.5))
    assert trained(script, "random", "random-0", 60.0).spread == 0.0


def test_agreement_is_one_where_short_trainings_rank_as_published(script):
    ordered = sorted(script.PRINTED, key=script.PRINTED.__getitem__)
    same = [trained(script, "published", name, 50.0 + place) for place, name in enumerate(ordered)]
    reverse = [trained(script, "published", name, 50.0 - place) for place, name in enumerate(ordered)]
    assert script.summarize(same)["kendall"]["tau"] == pytest.approx(1)
    assert script.summarize(reverse)["kendall"]["tau"] == pytest.approx(-1)


def test_strategies_are_compared_with_random_cells(script):
    cells = [trained(script, "random", f"random-{n}", 50.0 + n / 10) for n in range(8)]
    cells += [trained(script, "gdas", f"gdas-{n}", 60.0 + n / 10) for n in range(8)]
    verdicts = script.summarize(cells)["verdicts"]
    assert list(verdicts) == ["gdas"]
    assert verdicts["gdas"].startswith("better than random") and "95 % CI" in verdicts["gdas"]


def test_settings_are_read_by_section(script):
    settings = script.settings_of(["training.epochs=1", "network.channels=4"], Path("data"))
    assert settings["training"] == {"epochs": 1} and settings["network"] == {"channels": 4}
    assert settings["data"] == {"directory": "data"}
