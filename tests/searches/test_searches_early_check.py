"""Settings are checked before torch is imported; the lines are those of the full check."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from archloom.core.errors import SettingError
from archloom.core.recipes import comparisons, find_spec, recipes, shipped
from archloom.core.settings import read_toml
from archloom.searches.early_check import check_early, check_file_early
from archloom.searches.spec import SearchSpec

WRONG: list[dict[str, Any]] = [
    {"strategy": {"name": "gdsa"}},
    {"space": {"name": "nb210"}, "data": {"name": "cifar11"}},
    {"sarch": {}},
    {"search": {"epochs": -1}},
    {"search": {"epochs": "many"}},
    {"search": {"budget": "soon"}},
    {"race": {"contestants": -1}},
    {"strategy": {"name": "gdas", "temprature_start": 3}},
    {"strategy": {"name": "gdas", "preset": "pubic"}},
    {"strategy": {"logits": {"learning_rat": 3}}},
    {"network": {"chanels": 3}},
    {"weights": {"learning_rate": "x"}},
    {"data": {"name": "folder", "sizes": 3}},
    {"data": {"name": "no/such/folder"}},
]


@pytest.mark.parametrize("given", WRONG, ids=str)
def test_the_lines_are_those_of_the_full_check(given: dict[str, Any]) -> None:
    with pytest.raises(SettingError) as early:
        check_early(given)
    with pytest.raises(SettingError) as full:
        SearchSpec.resolve(given)
    assert early.value.problems == full.value.problems


@pytest.mark.parametrize("name", sorted(recipes()))
def test_every_shipped_recipe_passes(name: str) -> None:
    check_early(read_toml(recipes()[name]))


@pytest.mark.parametrize("name", sorted(name for name in shipped() if name.startswith("run/")))
def test_every_shipped_pipeline_passes(name: str) -> None:
    check_file_early("run", find_spec("run", name, Path("runs")), {})


@pytest.mark.parametrize("name", sorted(comparisons()))
def test_every_shipped_comparison_passes(name: str) -> None:
    check_file_early("compare", find_spec("compare", name, Path("runs")), {})


@pytest.mark.parametrize("given", [{"strategy": {"name": "own:Strategy", "anything": 1}}, {"data": {"name": "given"}}])
def test_what_only_code_knows_is_left_to_the_full_check(given: dict[str, Any]) -> None:
    check_early(given)


def test_a_missing_data_folder_is_found(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"no data folder .*missing; check --data-dir"):
        check_early({"data": {"directory": str(tmp_path / "missing")}})


def test_published_data_need_a_folder_where_a_run_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARCHLOOM_DATA", raising=False)
    given = {"data": {"name": "cifar10"}}
    check_early(given)
    with pytest.raises(SettingError, match="data set 'cifar10' needs a data folder; give --data-dir or set"):
        check_early(given, needs_data=True)
    check_early({"data": {"name": "cifar10", "directory": str(tmp_path)}}, needs_data=True)
    monkeypatch.setenv("ARCHLOOM_DATA", str(tmp_path))
    check_early(given, needs_data=True)


def test_a_missing_table_is_found(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"^search.table must be a CSV file that exists, got 'mine.csv'$"):
        check_early({"search": {"table": "mine.csv"}})
    with pytest.raises(SettingError, match=r"unknown benchmark 'nb202'; did you mean 'nb201'\?"):
        check_early({"search": {"table": "nb202"}})
    (tmp_path / "mine.csv").touch()
    check_early({"search": {"table": str(tmp_path / "mine.csv")}})
    check_early({"search": {"table": "tables:Mine"}})


def test_files_of_several_runs_name_the_part_that_is_wrong() -> None:
    source = find_spec("run", "folder", Path("runs"))
    overrides = {"search": {"strategy": {"name": "gdsa"}}, "retrain": {"training": {"epocs": 1}}}
    with pytest.raises(SettingError) as error:
        check_file_early("run", source, overrides)
    assert error.value.problems == (
        "search: unknown strategy 'gdsa'; did you mean 'gdas'?",
        "retrain: unknown setting 'training.epocs'; did you mean 'epochs'?",
    )
    with pytest.raises(SettingError, match=r"entry random_search: unknown setting 'search.epchs'"):
        source = find_spec("compare", "first", Path("runs"))
        check_file_early("compare", source, {}, in_searches={"search": {"epchs": 1}})


COMMANDS = [
    ["search", "--strategy", "gdsa"],
    ["search", "--set", "search.epochs=-1"],
    ["search", "no/such/folder"],
    ["search", "cifr10"],
    ["search", "cifar10"],
    ["search", "cifar10/gdas"],
    ["search", "--data-dir", "missing"],
    ["search", "--strategy", "gdas", "--set", "strategy.temprature_start=3"],
    ["search", "--set", "search.table=mine.csv"],
    ["run", "no/such/folder"],
    ["retrain", "darts_v2", "--set", "optimizer.lr=1"],
    ["compare", "first", "--set", "search.epchs=1"],
]


def test_no_command_imports_torch_to_find_a_typing_error(tmp_path: Path) -> None:
    code = f"""
import sys
from archloom.cli.main import run
for words in {json.dumps(COMMANDS)}:
    try:
        run(words)
    except SystemExit as ended:
        assert ended.code == 2, words
    assert "torch" not in sys.modules, words
"""
    without_data = {name: value for name, value in os.environ.items() if name != "ARCHLOOM_DATA"}
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=without_data, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert all(line.startswith("error: ") for line in ended.stderr.splitlines()), ended.stderr
