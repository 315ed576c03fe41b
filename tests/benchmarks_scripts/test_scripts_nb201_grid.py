"""The script that runs recipes over seeds: what it makes of its options and of what the searches found."""

from __future__ import annotations

import importlib
import io
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("nb201_grid")


@pytest.mark.parametrize(("text", "wanted"), [("0-4", [0, 1, 2, 3, 4]), ("3", [3]), ("0,5,7", [0, 5, 7])])
def test_seeds_are_a_list_or_a_range(grid, text, wanted):
    assert grid.seeds(text) == wanted


def row(seed: int, test: float, **others) -> dict:
    found = {
        "recipe": "gibbs",
        "seed": seed,
        "failed": None,
        "text": f"cell {seed}",
        "valid": test - 3,
        "without_none": test,
    }
    scores = {
        "test": dict.fromkeys(("cifar10", "cifar100", "imagenet16"), test),
        "regret": 94.37 - test,
        "seconds": 60.0,
    }
    return {**found, **scores, "curve": [80.0, test], **others}


def test_a_failed_search_is_counted_and_not_averaged(grid):
    grouped = {"gibbs": [row(0, 93.0), row(1, 94.0), {"recipe": "gibbs", "seed": 2, "failed": "no data"}]}
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(grid._table(grouped))
    text = console.export_text()
    assert "2 of 3" in text
    assert "93.50 ± 0.71" in text


def test_curves_are_drawn_from_what_succeeded(grid, tmp_path):
    grouped = {"gibbs": [row(0, 93.0), row(1, 94.0)], "gdas": [{"recipe": "gdas", "seed": 0, "failed": "no data"}]}
    grid.draw_curves(grouped, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 1000


def test_a_search_that_cannot_start_is_a_row_with_its_message(grid, tmp_path):
    options = SimpleNamespace(out=tmp_path, data_dir=tmp_path, set=["search.epochs=none"])
    recipe = tmp_path / "broken.toml"
    recipe.write_text('seed = 0\n[strategy]\nname = "gibbs"\n')
    found = grid._search(recipe, 0, options, Console(quiet=True))
    assert "search.epochs" in found["failed"]
    assert json.dumps(found)


def test_a_comparison_is_told_by_entry_without_its_black_box_searches(grid, tmp_path, monkeypatch):
    for name in ("GibbsNAS-2nd-0", "GibbsNAS-2nd-1", "GDAS-1"):
        (tmp_path / "runs" / name / "checkpoints").mkdir(parents=True)
        (tmp_path / "runs" / name / "architecture.json").touch()
    (tmp_path / "runs" / "GDAS-2" / "checkpoints").mkdir(parents=True)
    (tmp_path / "runs" / "RS-0").mkdir()
    monkeypatch.setattr(grid, "_summarize", lambda path, data: {"text": path.name})
    found = grid._compared(SimpleNamespace(compared=tmp_path, data_dir=tmp_path))
    assert {name: [(one["seed"], one.get("text", one["failed"])) for one in rows] for name, rows in found.items()} == {
        "GDAS": [(1, "GDAS-1"), (2, "not finished")],
        "GibbsNAS-2nd": [(0, "GibbsNAS-2nd-0"), (1, "GibbsNAS-2nd-1")],
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "recipes, or the folder"),
        (["a.toml", "--compared", "runs"], "recipes, or the folder"),
        (["--compared", "nowhere"], "nowhere is not the folder of a comparison"),
    ],
)
def test_either_recipes_or_a_comparison(grid, given, said, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["nb201_grid.py", *given, "--data-dir", "d", "--out", "o"])
    with pytest.raises(SystemExit, match="2"):
        grid._options()
    assert said in capsys.readouterr().err
