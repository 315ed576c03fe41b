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
    assert trained(script, "random", "random-0", 60.0).spread is None


def test_agreement_is_one_where_short_trainings_rank_as_published(script):
    ordered = sorted(script.PRINTED, key=script.PRINTED.__getitem__)
    same = [trained(script, "published", name, 50.0 + place) for place, name in enumerate(ordered)]
    reverse = [trained(script, "published", name, 50.0 - place) for place, name in enumerate(ordered)]
    assert script.find_agreement(same)["tau"] == pytest.approx(1)
    assert script.find_agreement(reverse)["tau"] == pytest.approx(-1)


def test_strategies_are_compared_with_random_cells(script):
    cells = [trained(script, "random", f"random-{n}", 50.0 + n / 10) for n in range(8)]
    cells += [trained(script, "gdas", f"gdas-{n}", 60.0 + n / 10) for n in range(8)]
    verdicts = script.find_verdicts(cells)
    assert list(verdicts) == ["gdas", "all searches"]
    assert verdicts["gdas"].startswith("better than random") and "95 % CI" in verdicts["gdas"]


def training(script: ModuleType, name: str, seed: int, accuracy: float = 50.0, text: str = "text"):
    return script.Training("random", name, seed, accuracy, 1000, text)


def test_a_table_is_read_as_it_was_written(script, tmp_path):
    table, done = tmp_path / "table.csv", [training(script, "random-0", 0, 50.25, "a, 'quoted' text")]
    assert script.read_table(table) == []
    script.write_table(table, done)
    assert script.read_table(table) == done


def test_missing_trainings_come_seed_after_seed_and_include_cells_of_the_table(script):
    new = script.Cell("gdas", "gdas-0", "other")
    done = [training(script, "random-0", 0), training(script, "random-1", 1)]
    missing = script.list_missing([new], done, [0, 1])
    assert [(cell.name, seed) for cell, seed in missing] == [
        ("gdas-0", 0),
        ("random-1", 0),
        ("gdas-0", 1),
        ("random-0", 1),
    ]


def test_two_cells_of_one_name_are_refused(script):
    with pytest.raises(script.SettingError, match="two cells have the name random-0"):
        script.list_missing([script.Cell("random", "random-0", "new")], [training(script, "random-0", 0)], [0])
    with pytest.raises(script.SettingError, match="two cells"):
        both = [training(script, "random-0", 0), training(script, "random-0", 1, text="other")]
        script.list_missing([], both, [0])


def test_accuracies_of_a_cell_are_gathered(script):
    done = [
        training(script, "random-0", 0, 50.0),
        training(script, "random-1", 0, 70.0),
        training(script, "random-0", 1, 52.0),
    ]
    found = script.gather(done)
    assert [(one.cell.name, one.accuracies) for one in found] == [("random-0", (50.0, 52.0)), ("random-1", (70.0,))]


def test_settings_are_read_by_section(script):
    settings = script.settings_of(["training.epochs=1", "network.channels=4"], Path("data"))
    assert settings["training"] == {"epochs": 1} and settings["network"] == {"channels": 4}
    assert settings["data"] == {"directory": "data"}
