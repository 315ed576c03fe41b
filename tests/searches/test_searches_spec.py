from __future__ import annotations

from pathlib import Path

import pytest

from archloom.core.errors import SettingError
from archloom.core.renames import RenamedSettingWarning
from archloom.core.seeds import derive_seed
from archloom.core.settings import read_toml, write_toml
from archloom.searches.search_settings import SearchSettings
from archloom.searches.spec import SearchSpec


def problems(given: dict) -> tuple[str, ...]:
    with pytest.raises(SettingError) as caught:
        SearchSpec.resolve(given)
    return caught.value.problems


PLAIN = {"auxiliary": False, "drop_path": 0.0, "dropout": 0.0}


def test_nothing_given_is_gibbs_on_nb201_and_strokes():
    experiment = SearchSpec.resolve({})
    assert (experiment.space.name, experiment.strategy.name, experiment.data_set.name) == ("nb201", "gibbs", "strokes")
    assert experiment.network.settings == {"channels": 16, **PLAIN}  # sizes follow once the data are read
    assert experiment.title == "gibbs on nb201, strokes, seed 0"
    assert experiment.stem == "nb201-gibbs-strokes"


def test_large_data_keeps_the_defaults_of_the_papers():
    experiment = SearchSpec.resolve({"data": {"name": "cifar10"}, "strategy": {"name": "gdas"}})
    assert experiment.network.settings == {"channels": 16, **PLAIN}
    assert experiment.space.settings["cells_per_stage"] == 5
    assert experiment.strategy.settings["learning_rate"] is None  # by the number of steps: 3e-4 in 50 epochs


def test_what_the_user_says_beats_preset_beats_named_space():
    experiment = SearchSpec.resolve(
        {
            "space": {"name": "nb201_mini"},
            "strategy": {"name": "gdas", "preset": "paper", "temperature_start": 5.0},
            "search": {"batch_size": 32},
        }
    )
    assert experiment.space.settings["nodes"] == 3
    assert experiment.strategy.settings["temperature_start"] == 5.0
    assert experiment.strategy.settings["temperature_end"] == 1.0  # of the preset
    assert experiment.search.epochs == 240  # the preset's
    assert experiment.search.batch_size == 32


@pytest.mark.parametrize(
    "strategy",
    [
        {"name": "gdas"},
        {"name": "gdas", "preset": "paper"},
        {"name": "gdas", "preset": "public"},
        {"name": "gibbs"},
        {"name": "gibbs", "preset": "paper"},
    ],
)
def test_a_resolved_configuration_resolves_to_itself_through_toml(tmp_path: Path, strategy):
    given = {"strategy": strategy, "seed": 7, "data": {"train_images": 100}}
    experiment = SearchSpec.resolve(given)
    (tmp_path / "config.toml").write_text(write_toml(experiment.to_settings()))
    assert SearchSpec.resolve(read_toml(tmp_path / "config.toml")) == experiment


def test_all_problems_are_told_at_once():
    strategy = {"name": "gdas", "temperature_strat": 5, "sampling": "both"}
    assert problems({"strategy": strategy, "search": {"epochs": "ten"}, "network": {"channel": 3}}) == (
        "unknown setting 'strategy.temperature_strat'; did you mean 'temperature_start'?",
        "strategy.sampling must be one of batch, sample, got 'both'",
        "unknown setting 'network.channel'; did you mean 'channels'?",
        "search.epochs must be a whole number, got 'ten'",
    )


def test_a_preset_is_as_published_even_on_small_data():
    experiment = SearchSpec.resolve({"strategy": {"name": "gdas", "preset": "public"}})
    assert experiment.strategy.settings["learning_rate"] == 3e-4
    assert experiment.weights.learning_rate == 0.025
    assert experiment.network.settings == {"channels": 16, **PLAIN}


def test_none_over_a_preset_survives_the_file(tmp_path: Path):
    experiment = SearchSpec.resolve({"strategy": {"name": "gdas", "preset": "paper", "keep_none": None}})
    (tmp_path / "config.toml").write_text(write_toml(experiment.to_settings()))
    assert SearchSpec.resolve(read_toml(tmp_path / "config.toml")).strategy.settings["keep_none"] is None


def test_the_data_folder_is_kept_as_it_was_found(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARCHLOOM_DATA", "tables")
    assert SearchSpec.resolve({}).data.directory == tmp_path / "tables"
    assert SearchSpec.resolve({"data": {"directory": "own"}}).data.directory == tmp_path / "own"
    monkeypatch.delenv("ARCHLOOM_DATA")
    assert SearchSpec.resolve({}).data.directory is None


def test_a_device_that_is_not_here_does_not_keep_a_run_from_being_read():
    assert SearchSpec.resolve({"machine": {"device": "cuda:31"}}).machine.device == "cuda:31"


def test_an_unknown_section_gets_a_suggestion():
    assert problems({"seeds": 1}) == ("unknown section 'seeds'; did you mean 'seed'?",)


def test_broken_rules_of_different_parts_are_told_together():
    found = problems(
        {
            "space": {"nodes": 1},
            "weights": {"learning_rate": -1.0, "momentum": 2.0},
            "search": {"epochs": -1, "batch_size": 1},
            "machine": {"torch_threads": -1},
        }
    )
    assert set(found) == {
        "space.nodes must lie in 2..64, got 1",
        "weights.learning_rate must be above 0, got -1.0",
        "weights.momentum must be in [0, 1), got 2.0",
        "search.epochs must be at least 0, got -1",
        "search.batch_size must be at least 2, got 1",
        "machine.torch_threads must lie in 0..1024, got -1",
    }


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"space": {"name": "nb202"}}, "unknown space 'nb202'; did you mean 'nb201'?"),
        ({"strategy": {"name": "gdsa"}}, "unknown strategy 'gdsa'; did you mean 'gdas'?"),
        ({"data": {"name": "cifar"}}, "unknown data set 'cifar'; did you mean 'cifar10'?"),
        ({"strategy": {"preset": "papers"}}, "unknown preset 'papers' of the strategy; did you mean 'paper'?"),
        ({"seed": -1}, "seed must be a whole number from 0, got -1"),
        ({"seed": "x"}, "seed must be a whole number from 0, got 'x'"),
        ({"space": 3}, "space must be a table of settings, got 3"),
        ({"data": {"sise": 3}}, "unknown setting 'data.sise'; known: directory, split, split_seed, train_fraction"),
        ({"strategy": {"preset": [1]}}, "unknown preset '[1]' of the strategy; known: paper"),
        ({"data": {"split_seed": 2**70}}, "data.split_seed must be a whole number between -2^63 and 2^63, got"),
        ({"data": {"train_fraction": 2.0}}, "data.train_fraction must lie in (0, 1), got 2.0"),
        ({"data": {"train_images": 1}}, "data.train_images must be at least 2, got 1"),
        ({"search": {"cutout": -1}}, "search.cutout must be at least 0, got -1"),
        ({"network": {"channels": 10**15}}, "network.channels must lie in 1..65536, got 1000000000000000"),
        ({"strategy": {"name": "json:loads"}}, "strategy 'json:loads' must be a complete class derived from Stateful"),
        ({"network": {"channels": 0}}, "network.channels must lie in 1..65536, got 0"),
        ({"space": {"operations": ["skip_connect", "magic"]}}, "unknown operation 'magic'"),
    ],
)
def test_bad_values_are_named(given, line):
    assert any(problem.startswith(line) for problem in problems(given)), problems(given)


def test_streams_of_one_seed_differ_and_are_stable():
    assert derive_seed(0, "train") == derive_seed(0, "train")
    assert len({derive_seed(seed, purpose) for seed in range(5) for purpose in ("train", "valid", "weights")}) == 15


def test_a_missing_extra_is_told_before_anything_is_made(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert problems({"search": {"tensorboard": True}}) == (
        "search.tensorboard needs an extra: pip install 'archloom[tensorboard]'",
    )


def test_every_search_setting_has_a_least_value():
    with pytest.raises(SettingError, match=r"search\.trials must be at least 1, got 0"):
        SearchSettings(trials=0)


def test_race_networks_have_settings_that_the_family_has() -> None:
    given = {"space": {"name": "proxylessnas_32"}, "race": {"network": {"channels": 8}}}
    with pytest.raises(SettingError, match=r"race.network has no setting 'channels'"):
        SearchSpec.resolve(given)


def test_race_spaces_are_checked_before_anything_is_trained() -> None:
    with pytest.raises(SettingError, match=r"space.cells_per_stage must lie in 1..1000, got 0"):
        SearchSpec.resolve({"race": {"space": {"cells_per_stage": 0}}})


def test_old_names_of_the_race_still_work() -> None:
    old = {"search": {"finalist_steps": 7, "finalist_size": 0.4, "finalist_sweeps": 2, "finalist_channels": 4}}
    with pytest.warns(RenamedSettingWarning, match="search.finalist_steps is now race.steps"):
        race = SearchSpec.resolve({**old, "strategy": {"finalists": 9}}).race
    assert (race.steps, race.size, race.network, race.contestants) == (7, 0.4, {"channels": 4}, 9)


def test_only_a_race_needs_no_epochs() -> None:
    with pytest.raises(SettingError, match=r"search.epochs must be at least 1 without a finalist race, got 0"):
        SearchSpec.resolve({"search": {"epochs": 0}})
    assert SearchSpec.resolve({"search": {"epochs": 0, "budget": "1m"}}).search.epochs == 0
    assert SearchSpec.resolve({"search": {"epochs": 0}, "race": {"contestants": 2}}).search.epochs == 0


@pytest.mark.parametrize("budget", ["soon", "10", "-3m", "0s"])
def test_a_budget_is_a_duration(budget: str) -> None:
    with pytest.raises(SettingError, match="a budget is written like 30m"):
        SearchSpec.resolve({"search": {"budget": budget}})
