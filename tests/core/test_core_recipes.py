"""Where recipes are found: in the package, in a checkout, or by their path."""

from __future__ import annotations

from pathlib import Path

import pytest

from archloom.core import recipes as module
from archloom.core.errors import SettingError
from archloom.core.recipes import find_recipe, find_retraining, recipes, retrainings, summary


def test_an_installed_package_has_its_recipes_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "archloom" / "recipes"
    (inside / "papers").mkdir(parents=True)
    (inside / "papers" / "a.toml").write_text("# What it is.\nseed = 1\n")
    monkeypatch.setattr(module, "PLACES", (inside, *module.PLACES))
    assert recipes() == {"papers/a": inside / "papers" / "a.toml"}
    assert find_recipe("papers/a") == inside / "papers" / "a.toml"
    assert summary(inside / "papers" / "a.toml") == "What it is."


def test_without_recipes_a_path_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLACES", (tmp_path / "none",))
    assert recipes() == {}
    assert find_recipe("mine.toml") == Path("mine.toml")
    with pytest.raises(SettingError, match="no recipe 'first'"):
        find_recipe("first")


def test_a_file_of_any_name_is_taken(tmp_path: Path) -> None:
    (tmp_path / "settings").touch()
    assert find_recipe(str(tmp_path / "settings")) == tmp_path / "settings"


def test_recipes_of_retrainings_are_known_by_short_names_and_are_no_searches() -> None:
    assert "cifar" in retrainings() and "retrain/cifar" not in recipes()
    assert find_retraining("cifar") == find_retraining("retrain/cifar") == retrainings()["cifar"]
    assert find_retraining("imagenet-mobile") == retrainings()["imagenet_mobile"]
    with pytest.raises(SettingError, match="'retrain/cifar' is a way to train one architecture: archloom retrain"):
        find_recipe("retrain/cifar")
