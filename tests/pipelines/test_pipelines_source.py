from __future__ import annotations

from pathlib import Path

import pytest

from archloom.core.errors import SettingError
from archloom.pipelines.source import find_pipeline_source

RUNS = Path("runs")


def test_data_stand_for_the_shipped_recipe_on_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    source, overrides = find_pipeline_source("pictures/", RUNS, overrides={"budget": "5m"})
    assert source.settings["export"] == ["onnx"]
    assert source.folder == RUNS / "run-pictures"
    assert overrides == {"search": {"data": {"name": str(tmp_path / "pictures")}}, "budget": "5m"}
    source, overrides = find_pipeline_source("cifar10", RUNS, overrides={})
    assert (source.folder, overrides) == (RUNS / "run-cifar10", {"search": {"data": {"name": "cifar10"}}})


def test_recipes_and_folders_of_results_are_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()  # called like a shipped pipeline: the pipeline is meant
    source, overrides = find_pipeline_source("folder", RUNS, overrides={})
    assert (source.folder, overrides) == (RUNS / "run-folder", {})
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "pipeline.toml").write_text("title = 'Mine'\n")
    source, _ = find_pipeline_source("earlier", RUNS, overrides={})
    assert (source.settings, source.folder) == ({"title": "Mine"}, Path("earlier"))
    with pytest.raises(SettingError, match="no pipeline 'fodler'; did you mean"):
        find_pipeline_source("fodler", RUNS, overrides={})
