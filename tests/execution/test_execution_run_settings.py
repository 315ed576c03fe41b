"""A configuration that was edited is noticed, setting by setting; what may differ is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import archloom
from archloom.core.errors import SettingError
from archloom.core.settings import merge, read_toml, write_toml
from archloom.execution.loop import Interrupted
from archloom.execution.run_folder import RunFolder
from archloom.execution.run_settings import SETTINGS, refuse_changed_settings, select_determining

CONFIG = Path("run/config.toml")
TINY: dict[str, Any] = {
    "data": {"train_images": 64, "valid_images": 64},
    "search": {"batch_size": 32, "evaluation_images": 32, "random_baseline_samples": 2, "finalist_steps": 0},
    "network": {"channels": 4},
}


def test_settings_are_plain_and_none_is_a_value() -> None:
    given = {"seed": 1, "data": {"directory": Path("a"), "path": Path("b"), "cut": None}, "machine": {"device": "cpu"}}
    assert select_determining(given, ("machine.", "data.directory")) == {"seed": 1, "data.path": "b", "data.cut": None}


@pytest.mark.parametrize(("begun", "now"), [(None, 3), (3, None), (3, 4), ("a", "b"), ([1, 2], [2, 1]), (True, False)])
def test_another_value_is_refused_and_named(begun: Any, now: Any) -> None:
    with pytest.raises(SettingError) as caught:
        refuse_changed_settings(CONFIG, {SETTINGS: {"a.b": begun}}, {"a.b": now})
    assert str(caught.value) == (
        f"run/config.toml was changed: the run began with a.b = {begun!r}, now it is {now!r}; "
        "change it back, or begin another run"
    )


@pytest.mark.parametrize("state", [{}, {SETTINGS: None}, {SETTINGS: {"gone": 1, "same": 3}}, None])
def test_other_versions_and_equal_values_pass(state: Any) -> None:
    refuse_changed_settings(CONFIG, state, {"new": 1, "same": 3.0})


def test_every_change_is_a_line_up_to_a_limit() -> None:
    begun = {f"s{number}": 0 for number in range(23)}
    with pytest.raises(SettingError) as caught:
        refuse_changed_settings(CONFIG, {SETTINGS: begun}, dict.fromkeys(begun, 1))
    assert len(caught.value.problems) == 21 and caught.value.problems[-1] == "... and 3 more settings"


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    calls = iter(range(1000))
    with pytest.raises(Interrupted):
        archloom.search("nb201_mini", "gdas", out=folder, epochs=3, settings=TINY, stop=lambda: next(calls) > 0)
    return folder


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 1}, "seed = 0, now it is 1"),
        ({"search": {"batch_size": 16}}, "search.batch_size = 32, now it is 16"),
        ({"search": {"cutout": 2}}, "search.cutout = None, now it is 2"),
        ({"data": {"train_images": 32}}, "data.train_images = 64, now it is 32"),
        ({"strategy": {"temperature_start": 5.0}}, "strategy.temperature_start = 10.0, now it is 5.0"),
    ],
)
def test_an_edited_configuration_is_not_resumed(interrupted: Path, change: dict[str, Any], named: str) -> None:
    config = interrupted / "config.toml"
    before = config.read_text()
    config.write_text(write_toml(merge(read_toml(config), change)))
    try:
        with pytest.raises(SettingError) as caught:
            archloom.resume(interrupted)
    finally:
        config.write_text(before)
    assert len(caught.value.problems) == 1 and f"the run began with {named};" in str(caught.value)
    assert not RunFolder(interrupted).finished


def test_another_strategy_of_the_same_settings_is_noticed(interrupted: Path) -> None:
    config = interrupted / "config.toml"
    before = config.read_text()
    edited = {**read_toml(config), "strategy": {"name": "rsps"}}
    config.write_text(write_toml(edited))
    try:
        with pytest.raises(SettingError, match=r"strategy\.name = 'gdas', now it is 'rsps'"):
            archloom.resume(interrupted)
    finally:
        config.write_text(before)


def test_the_machine_may_differ(interrupted: Path) -> None:
    calls = iter(range(1000))
    with pytest.raises(Interrupted):
        archloom.resume(interrupted, settings={"machine": {"loader_threads": 1}}, stop=lambda: next(calls) >= 0)
