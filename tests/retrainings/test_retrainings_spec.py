"""A retraining resolved: what a recipe, a family, a run and a user say, and everything that is wrong at once."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path
from typing import Any

import pytest

from archloom.core.errors import SettingError
from archloom.core.recipes import find_retraining, retrainings, summary
from archloom.core.settings import read_toml, write_toml
from archloom.execution import survey
from archloom.families import family_of
from archloom.retrainings.spec import KIND, RetrainSpec, compose
from archloom.searches.architectures import find_architecture, find_space

NB201 = "nb201_best"


def composed(what: str, recipe: str, **said: Any) -> dict[str, Any]:
    found = find_architecture(what, space_name=said.get("space", {}).get("name"))
    told = read_toml(find_retraining(recipe))
    parts = (found.space_name, found.space, found.architecture)
    return compose(*parts, recipe=(recipe, told), inherited=said.pop("inherited", {}), overrides=said)


def resolved(what: str, recipe: str, **said: Any) -> RetrainSpec:
    return RetrainSpec.resolve(composed(what, recipe, **said))


@pytest.mark.parametrize("recipe", retrainings())
@pytest.mark.parametrize("what", ["darts_v2", NB201])
def test_every_shipped_recipe_resolves_for_every_family_and_says_what_it_is(recipe: str, what: str) -> None:
    retrain = resolved(what, recipe)
    assert retrain.recipe == recipe
    assert summary(retrainings()[recipe]).endswith(".")
    assert retrain.to_settings()["kind"] == KIND
    if what == NB201:
        assert RetrainSpec.resolve(tomllib.loads(write_toml(retrain.to_settings()))) == retrain


def test_the_cifar_protocol_is_that_of_the_papers() -> None:
    retrain = resolved("darts_v2", "cifar")
    assert len(retrain.build_space().slots) == 20  # type: ignore[attr-defined]
    network = retrain.network.settings
    assert (network["channels"], network["auxiliary"], network["drop_path"]) == (36, True, 0.2)
    assert (retrain.training.epochs, retrain.training.batch_size, retrain.training.cutout) == (600, 96, 16)
    assert retrain.training.auxiliary_weight == 0.4
    optimizer = retrain.optimizer
    assert (optimizer.learning_rate, optimizer.momentum, optimizer.weight_decay, optimizer.clip) == (
        0.025,
        0.9,
        3e-4,
        5,
    )
    assert optimizer.rate_at(600, epochs=600) == 0
    assert (retrain.data.split, retrain.training.keep) == ("none", "last")
    assert len(resolved("darts_v2", "cifar_8cells").build_space().slots) == 8  # type: ignore[attr-defined]


def test_the_benchmarks_own_protocol() -> None:
    for recipe, epochs in (("nb201_12", 12), ("nb201_200", 200)):
        retrain = resolved(NB201, recipe)
        assert (retrain.space.settings["cells_per_stage"], retrain.network.settings["channels"]) == (5, 16)
        assert (retrain.training.epochs, retrain.training.batch_size, retrain.data.split) == (epochs, 256, "nb201")
        optimizer = retrain.optimizer
        assert (optimizer.learning_rate, optimizer.nesterov, optimizer.weight_decay, optimizer.clip) == (
            0.1,
            True,
            5e-4,
            0,
        )
        assert optimizer.every_step


def test_the_two_mobile_policies_differ_in_the_learning_rate() -> None:
    darts, linear = resolved("darts_v2", "imagenet-mobile"), resolved("darts_v2", "imagenet_mobile_linear")
    assert darts.optimizer.rate_at(1, epochs=250) == pytest.approx(0.097)
    assert (linear.optimizer.policy, linear.optimizer.learning_rate, linear.optimizer.warmup_epochs) == (
        "linear",
        0.5,
        5,
    )
    assert (darts.training.batch_size, linear.training.batch_size) == (128, 1024)
    for retrain in (darts, linear):
        assert (retrain.training.epochs, retrain.training.label_smoothing) == (250, 0.1)
        assert (retrain.optimizer.weight_decay, retrain.network.settings["stem"]) == (3e-5, "imagenet")
        assert retrain.data_set.settings["resized_crop"] == 224


def test_what_a_user_says_wins_and_the_run_names_the_data() -> None:
    inherited = {"name": "folder", "path": "here", "size": 20}
    retrain = resolved(NB201, "cifar", inherited=inherited, training={"epochs": 3}, seed=7)
    assert (retrain.training.epochs, retrain.seed) == (3, 7)
    assert (retrain.data_set.name, retrain.data_set.settings["size"]) == ("folder", 20)
    other = resolved(NB201, "cifar", inherited=inherited, data={"name": "digits"})
    assert other.data_set.name == "digits" and "path" not in other.data_set.settings
    assert resolved(NB201, "cifar").data_set.name == "cifar10"
    assert resolved(NB201, "auto").data_set.name == "strokes"


def test_layouts_of_gdas_are_as_deep_as_the_recipe_says_and_own_cells_stay() -> None:
    gdas = resolved("gdas", "cifar", space={"name": "darts_gdas"})
    assert len(gdas.build_space().slots) == 20  # type: ignore[attr-defined]
    found = find_architecture("gdas", space_name="darts_gdas")
    assert family_of(found.space).name == "darts"
    s2 = find_architecture(_any_of("s2"), space_name="s2")
    parts = (s2.space_name, s2.space, s2.architecture)
    told = read_toml(find_retraining("cifar_8cells"))
    made = RetrainSpec.resolve(compose(*parts, recipe=("cifar_8cells", told), inherited={}, overrides={}))
    assert len(made.build_space().slots) == 20  # type: ignore[attr-defined]


def _any_of(name: str) -> str:
    space = find_space(name)
    return space.format(space.sample(random.Random(0)))


def test_everything_wrong_is_told_at_once() -> None:
    with pytest.raises(SettingError) as caught:
        resolved(
            NB201, "cifar", training={"epoch": 3}, optimizer={"clip": "much"}, data={"sizes": 3}, network={"width": 1}
        )
    assert sorted(caught.value.problems) == [
        "optimizer.clip must be a finite number, got 'much'",
        "unknown setting 'data.sizes'; known: directory, split, split_seed, train_fraction, train_images, valid_images",
        "unknown setting 'network.width'; known: auxiliary, channels, drop_path, dropout",
        "unknown setting 'training.epoch'; did you mean 'epochs'?",
    ]
    with pytest.raises(SettingError) as caught:
        resolved(NB201, "cifar", training={"epochs": 0}, optimizer={"clip": -1.0}, network={"channels": 0})
    assert len(caught.value.problems) == 3
    with pytest.raises(SettingError, match=r"unknown section 'traning'; did you mean 'training'"):
        resolved(NB201, "cifar", traning={"epochs": 0})


@pytest.mark.parametrize("flags", ["avx512f avx512_bf16", "avx512f amx_bf16", "avx2"])
def test_bfloat16_needs_a_processor_that_has_it(flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text(f"flags : fpu {flags}\n")
    monkeypatch.setattr(survey, "PROCESSOR_FILE", tmp_path / "cpuinfo")
    chosen: dict[str, Any] = {"training": {"mixed_precision": True}, "machine": {"device": "cpu"}}
    if flags == "avx2":
        with pytest.raises(SettingError, match=r"must be false on this processor.*\(avx512_bf16, amx_bf16, bf16\)"):
            resolved(NB201, "cifar", **chosen)
    else:
        assert resolved(NB201, "cifar", **chosen).training.mixed_precision


def test_a_recipe_of_ones_own_is_checked_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[trainin]\nepochs = 3\n")
    with pytest.raises(
        SettingError, match=r"unknown section 'trainin' of recipe '.*mine.toml'; did you mean 'training'"
    ):
        resolved(NB201, str(path))
    with pytest.raises(SettingError, match=r"no recipe of a retraining 'cifr'; did you mean 'cifar'"):
        find_retraining("cifr")
