"""Every shipped recipe is a valid experiment that says what it is."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from archloom.comparisons.spec import ComparisonSpec
from archloom.core.recipes import NOT_SEARCHES, comparisons, find_comparison, recipes, shipped, summary
from archloom.core.settings import merge, read_toml
from archloom.searches.build import build_search
from archloom.searches.spec import SearchSpec
from archloom.testing import make_tiny_data

RECIPES = recipes()
CHECKOUT = Path(__file__).resolve().parents[1] / "recipes"


@cache
def resolved(name: str) -> SearchSpec:
    return SearchSpec.resolve(read_toml(RECIPES[name]))


def test_the_recipes_of_this_checkout_are_the_ones_found() -> None:
    assert set(shipped().values()) == set(CHECKOUT.rglob("*.toml"))
    others = {name for name in shipped() if name.startswith(tuple(NOT_SEARCHES))}
    assert set(RECIPES) == set(shipped()) - others
    assert {"first", "cifar10/gdas", "cifar10/rsps", "cifar10/darts_first"} <= set(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_resolves_and_says_what_it_is(name: str) -> None:
    path = RECIPES[name]
    assert path.read_text(encoding="utf-8").startswith("# ")
    assert summary(path).endswith(".")
    given = read_toml(path)
    experiment = resolved(name)
    for section in ("space", "strategy", "data"):
        assert experiment.to_settings()[section]["name"] == given[section]["name"]


@pytest.mark.parametrize("name", comparisons())
def test_a_comparison_resolves_and_says_what_it_is(name: str) -> None:
    path = comparisons()[name]
    assert summary(path).endswith(".") and path.read_text(encoding="utf-8").startswith("# ")
    assert find_comparison(name) == find_comparison(name.removeprefix("compare/")) == path
    made = ComparisonSpec.resolve(read_toml(path), beside=path.parent)
    assert made.against is not None and len(made.contenders) > 2
    rival = made.contenders[made.against].spec
    if name == "compare/limit":  # random search as a race: no epochs of any strategy, and random proposals
        assert (rival.search.epochs, rival.race.proposals, rival.race.references) == (0, "random", False)
    else:
        assert rival.strategy.name == ("darts" if name == "compare/stability" else "random_search")


def test_the_nb201_comparisons_have_the_rows_of_the_table_and_what_was_published() -> None:
    def rows(name: str) -> tuple[set[str], set[str]]:
        given = read_toml(find_comparison(name))
        assert all(row.keys() == {"cifar10", "cifar100", "imagenet16", "source"} for row in given["published"].values())
        return set(given["entry"]), set(given["published"])

    one_shot = {"RSPS", "DARTS-V1", "DARTS-V2", "GDAS", "SETN", "ENAS", "GibbsNAS"}
    black_box, known = {"REA", "RS", "REINFORCE", "BOHB"}, {"ResNet", "optimal"}
    assert rows("nb201") == (one_shot | black_box, one_shot | black_box | known)
    assert rows("nb201_black_box") == (black_box, black_box | known)
    assert rows("nb201_proxy") == (one_shot | {"RS"}, one_shot | {"RS"} | known)


@pytest.mark.parametrize(("name", "epochs"), [("gdas", 10), ("rsps", 20), ("darts_first", 5)])
def test_the_searches_on_cifar10_share_a_small_supernet(name: str, epochs: int) -> None:
    experiment = resolved(f"cifar10/{name}")
    assert experiment.search.epochs == epochs
    assert experiment.space.settings["cells_per_stage"] == 1
    assert experiment.network.settings["channels"] == 8
    assert experiment.data.split == "nb201"
    assert experiment.machine.torch_threads == 0


def test_papers_keep_their_settings() -> None:
    def settings(name: str, section: str) -> Any:
        return resolved(f"papers/{name}").to_settings()[section]

    assert settings("gdas_darts", "strategy")["temperature_end"] == 1.0
    assert settings("gdas_darts", "search")["epochs"] == 240
    assert settings("gdas_frc", "space")["reduction"] == "fixed"
    assert settings("darts_first", "search")["epochs"] == 50
    assert settings("darts_second", "strategy")["order"] == "second"


NB201_ROWS = {
    "rsps": "rsps",
    "darts_first": "darts",
    "darts_second": "darts",
    "gdas": "gdas",
    "setn": "setn",
    "enas": "enas",
    "gibbs": "gibbs",
    "rea": "regularized_evolution",
    "random_search": "random_search",
    "reinforce": "reinforce",
    "bohb": "bohb",
}


def test_every_row_of_the_nb201_table_has_a_recipe() -> None:
    assert {name.removeprefix("nb201/") for name in RECIPES if name.startswith("nb201/")} == set(NB201_ROWS)
    for name, strategy in NB201_ROWS.items():
        experiment = resolved(f"nb201/{name}")
        assert (experiment.space.name, experiment.strategy.name) == ("nb201", strategy)
        assert experiment.data_set.name == "cifar10"


@pytest.mark.parametrize("name", ["rsps", "darts_first", "darts_second", "gdas", "setn", "enas", "gibbs"])
def test_one_shot_rows_search_at_full_size_on_the_benchmarks_own_split(name: str) -> None:
    settings = resolved(f"nb201/{name}").to_settings()
    assert (settings["space"]["cells_per_stage"], settings["network"]["channels"]) == (5, 16)
    assert settings["data"]["split"] == "nb201"
    assert settings["data"]["train_images"] is None


@pytest.mark.parametrize("name", ["rea", "random_search", "reinforce", "bohb"])
def test_black_box_rows_are_told_short_trainings_of_the_table(name: str) -> None:
    search = resolved(f"nb201/{name}").search
    assert (search.score, search.score_epochs, search.trials) == ("table", 12, 100)


def test_rows_of_the_nb201_table_keep_their_settings() -> None:
    def settings(name: str, section: str) -> Any:
        return resolved(f"nb201/{name}").to_settings()[section]

    assert settings("gdas", "strategy")["temperature_end"] == 0.1
    assert settings("gdas", "weights")["nesterov"] is True
    assert settings("rsps", "strategy")["candidates"] == 100
    assert settings("darts_second", "strategy")["order"] == "second"
    epochs = {name: settings(name, "search")["epochs"] for name in ("rsps", "darts_first", "gdas", "setn", "gibbs")}
    assert epochs == {"rsps": 250, "darts_first": 50, "gdas": 250, "setn": 250, "gibbs": 50}


@pytest.mark.parametrize(("space", "cells"), [("s1", 8), ("s2", 20)])
def test_amended_darts_searches_in_the_network_that_is_evaluated(space: str, cells: int) -> None:
    experiment = resolved(f"papers/amended_{space}")
    assert experiment.space.name == space
    assert (experiment.space.settings["cells"], experiment.space.settings["edges"]) == (cells, "fixed")
    network, search = experiment.network.settings, experiment.search
    assert (network["channels"], network["auxiliary"], search.cutout) == (36, True, 16)
    assert network["dropout"] > 0
    assert (search.epochs, search.batch_size) == (100, 96)
    assert experiment.strategy.settings["inverse"] == "hessian"
    assert experiment.strategy.settings["eta"] == 0.1


def test_the_small_s2_searches_differ_in_their_strategy_alone() -> None:
    amended, darts = (resolved(f"stability/{name}").to_settings() for name in ("s2_amended", "s2_darts_second"))
    assert amended["strategy"] != darts["strategy"]
    assert {**amended, "strategy": None} == {**darts, "strategy": None}


CONTROLS = {  # by recipe: who takes part for sure, and who may not
    "gibbs": ({"derived", "ResNet block", "largest"}, set()),
    "darts": ({"derived", "ResNet block", "largest"}, set()),
    "tunas": ({"derived", "ResNet block", "largest"}, set()),
    "rsps": ({"derived", "ResNet block", "largest"}, set()),
    "race_only": ({"ResNet block", "largest"}, {"derived"}),
    "race_from_random": ({"random", "proposal"}, {"derived", "ResNet block", "largest"}),
    "random_search": ({"random"}, {"derived", "ResNet block", "largest", "proposal", "sample"}),
}


def test_every_control_has_a_row() -> None:
    assert {name.removeprefix("controls/") for name in RECIPES if name.startswith("controls/")} == set(CONTROLS)


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_races_what_it_says(name: str) -> None:
    """On images of a few pixels, and without the budget of the recipe: it would be planned by time."""
    given = {name: value for name, value in read_toml(RECIPES[f"controls/{name}"]).items() if name != "data"}
    epochs = given["search"].pop("budget") and given["search"].get("epochs", 1)
    own = {
        "data": {"name": "given"},
        "space": {"cells_per_stage": 1},
        "network": {"channels": 2},
        "search": {"epochs": epochs, "batch_size": 8, "evaluation_images": 8, "random_baseline_samples": 2},
        "race": {"contestants": 9, "random": 3, "steps": 1, "batch_size": 4},
        "machine": {"torch_threads": 1, "device": "cpu"},
    }
    outcome = build_search(SearchSpec.resolve(merge(given, own)), data=make_tiny_data()).run()
    assert outcome.race is not None and outcome.race.contestants == 9
    assert outcome.race.certainty is not None and 0 <= outcome.race.certainty.probability <= 1
    present, absent = CONTROLS[name]
    origins = {one.origin for one in outcome.finalists}
    assert present <= origins and not absent & origins
    assert (outcome.derived is None) == (given["search"].get("epochs") == 0)
    if name == "darts":
        assert outcome.derived is not None and "none" not in outcome.derived.values()
