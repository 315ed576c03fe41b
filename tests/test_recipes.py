"""Every shipped recipe is a valid experiment that says what it is."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from archloom.cli.recipes import recipes, summary
from archloom.runs.experiment import Experiment
from archloom.runs.settings import read_toml

RECIPES = recipes()
CHECKOUT = Path(__file__).resolve().parents[1] / "recipes"


@cache
def resolved(name: str) -> Experiment:
    return Experiment.resolve(read_toml(RECIPES[name]))


def test_the_recipes_of_this_checkout_are_the_ones_found() -> None:
    assert set(RECIPES.values()) == set(CHECKOUT.rglob("*.toml"))
    assert {"first", "cifar10/gdas", "cifar10/rsps", "cifar10/darts_first"} <= set(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_resolves_and_says_what_it_is(name: str) -> None:
    path = RECIPES[name]
    assert path.read_text(encoding="utf-8").startswith("# ")
    assert summary(path).endswith(".")
    given = read_toml(path)
    experiment = resolved(name)
    for section in ("space", "strategy", "data"):
        assert experiment.names[section] == given[section]["name"]


@pytest.mark.parametrize(("name", "epochs"), [("gdas", 10), ("rsps", 20), ("darts_first", 5)])
def test_the_searches_on_cifar10_share_a_small_supernet(name: str, epochs: int) -> None:
    experiment = resolved(f"cifar10/{name}")
    assert experiment.settings["search"]["epochs"] == epochs
    assert experiment.settings["space"]["cells_per_stage"] == 1
    assert experiment.settings["network"]["channels"] == 8
    assert experiment.settings["data"]["split"] == "nb201"
    assert experiment.settings["machine"]["threads"] == 0


def test_papers_keep_their_settings() -> None:
    def settings(name: str, section: str) -> Any:
        return resolved(f"papers/{name}").settings[section]

    assert settings("gdas_darts", "strategy")["temperature_end"] == 1.0
    assert settings("gdas_darts", "search")["epochs"] == 240
    assert settings("gdas_frc", "space")["reduction"] == "fixed"
    assert settings("gdas_nb201", "strategy")["temperature_end"] == 0.1
    assert settings("gdas_nb201", "weights")["nesterov"] is True
    assert settings("darts_first", "search")["epochs"] == 50
    assert settings("darts_second", "strategy")["order"] == "second"
    assert settings("rsps_nb201", "strategy")["candidates"] == 100
