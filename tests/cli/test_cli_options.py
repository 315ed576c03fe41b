from __future__ import annotations

from pathlib import Path

import pytest

from archloom.cli.options import data_settings, drop_unset, merge_options
from archloom.core.errors import SettingError


def test_assignments_override_options_and_options_that_were_not_given_are_dropped() -> None:
    options = {"seed": None, "search": {"epochs": 3, "trials": None}, "space": {"name": None}}
    assert drop_unset(options) == {"search": {"epochs": 3}}
    assert merge_options(options, ["search.epochs=5", "network.channels=8"]) == {
        "search": {"epochs": 5},
        "network": {"channels": 8},
    }
    assert merge_options(options, None) == {"search": {"epochs": 3}}


def test_problems_are_raised_together() -> None:
    with pytest.raises(SettingError) as error:
        merge_options({}, ["nonsense"], ["no data folder here"])
    assert error.value.problems == ("--set needs section.name=value, got 'nonsense'", "no data folder here")


def test_own_images_are_a_data_set_and_paths_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = data_settings(None, Path("data"), Path("photos"))
    assert given == {"name": str(tmp_path / "photos"), "directory": str(tmp_path / "data"), "path": None}
    given = data_settings("folder", None, Path("photos"))
    assert given == {"name": "folder", "directory": None, "path": str(tmp_path / "photos")}
    assert data_settings("cifar10", None) == {"name": "cifar10", "directory": None, "path": None}
