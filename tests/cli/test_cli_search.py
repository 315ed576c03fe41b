"""`archloom search`: whole searches in a moment, and every kind of bad input as one line."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from archloom.cli.search import resolve_search
from archloom.core.errors import SettingError
from archloom.spaces import SPACES, Nb201

Archloom = Callable[..., Any]


NO_RACE = ("--set", "race.contestants=0")


def test_a_search_prints_progress_and_its_outcome(archloom: Archloom, tiny: tuple[str, ...], tmp_path: Path) -> None:
    finished = archloom("search", "--space", "nb201_mini", "--epochs", "2", "--out", "run", *tiny)
    assert finished.code == 0, finished.err
    assert finished.lines[0] == "gibbs on nb201_mini, strokes, seed 0; run folder run"
    assert [line.split("  ")[0] for line in finished.lines[1:3]] == ["epoch 1/2", "epoch 2/2"]
    found = json.loads((tmp_path / "run" / "architecture.json").read_text())
    assert found["text"] in finished.out.splitlines()
    assert f"{found['table_entry']['rank']} of 125" in finished.out
    assert "report: run/report.html" in finished.out.splitlines()
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_quiet_search_by_trials_prints_only_its_outcome(
    archloom: Archloom, without_report: None, tmp_path: Path
) -> None:
    finished = archloom(
        "search", "--strategy", "random_search", "--space", "nb201_mini", "--set", "search.trials=5", "--quiet"
    )
    assert (finished.code, finished.err) == (0, "")
    assert "5 trials" in finished.out
    assert (tmp_path / "runs" / "nb201_mini-random_search-strokes-1" / "architecture.json").is_file()


def test_options_win_over_the_recipe_and_assignments_over_both(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(
        "seed = 1\n[strategy]\nname = 'darts'\nlearning_rate = 0.5\n[search]\nepochs = 7\nbatch_size = 8\n"
    )
    options = {"seed": 2, "search": {"epochs": 8, "batch_size": None}, "network": {"channels": None}}
    experiment = resolve_search(str(recipe), options, ["search.epochs=9", "strategy.weight_decay=0.1"])
    assert experiment.seed == 2
    assert experiment.strategy.name == "darts"
    assert experiment.search.epochs == 9
    assert experiment.search.batch_size == 8
    assert experiment.strategy.settings["learning_rate"] == 0.5
    assert experiment.strategy.settings["weight_decay"] == 0.1


def test_every_option_reaches_the_configuration(
    archloom: Archloom, tiny: tuple[str, ...], without_report: None, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    options = {
        "--strategy": "gdas",
        "--preset": "public",
        "--data": "digits",
        "--data-dir": "data",
        "--epochs": "1",
        "--seed": "5",
        "--channels": "4",
        "--device": "cpu",
        "--threads": "1",
        "--out": "run",
    }
    given = [part for pair in options.items() for part in pair]
    finished = archloom("search", "first", "--space", "nb201_mini", *given, *tiny, "--batch-size", "16", *NO_RACE, "-q")
    assert finished.code == 0, finished.err
    config = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert config["seed"] == 5
    assert config["space"]["name"] == "nb201_mini"
    assert config["weights"]["nesterov"] is True  # of the preset
    assert config["data"]["directory"] == str(tmp_path / "data")  # absolute: a run may be resumed from elsewhere
    assert config["search"]["epochs"] == 1
    assert config["search"]["batch_size"] == 32  # --set of the tiny options wins over --batch-size
    assert config["network"]["channels"] == 4
    assert config["machine"] == {
        "device": "cpu",
        "torch_threads": 1,
        "loader_threads": 1,
        "worker_processes": 1,
        "kernels": "auto",
        "recompute": False,
    }


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["--strategy", "gads"], ["unknown strategy 'gads'; did you mean 'gdas'?"]),
        (["--data", "digit"], ["unknown data set 'digit'; did you mean 'digits'?"]),
        (
            ["--strategy", "gdas", "--set", "strategy.temperature_strat=5"],
            ["unknown setting 'strategy.temperature_strat'; did you mean 'temperature_start'?"],
        ),
        (
            ["--set", "nonsense", "--epochs", "-1", "--set", "search.trials=0"],
            [
                "--set needs section.name=value, got 'nonsense'",
                "search.epochs must be at least 0, got -1",
                "search.trials must be at least 1, got 0",
            ],
        ),
        (
            ["--set", "strategy.warmup=-1", "--channels", "0"],
            [
                "strategy.warmup must lie in [0, 1), got -1.0",
                "network.channels must lie in 1..65536, got 0",
            ],
        ),
        (["--preset", "papre"], ["unknown preset 'papre' of the strategy; did you mean 'paper'?"]),
        (["firts"], ["no recipe or data set 'firts'; did you mean 'first'? (or a path of data or of a .toml file)"]),
        (["digits", "--data", "strokes"], ["data must be named once, got 'digits' and --data 'strokes'"]),
        (["nowhere/mine.toml"], ["no file nowhere/mine.toml; there is no folder nowhere"]),
        (["--data", "cifar10"], ["data set 'cifar10' needs a data folder; give --data-dir or set ARCHLOOM_DATA"]),
        (["--device", "gpu"], ["machine.device must be auto, cpu, cuda, cuda:N or mps, got 'gpu'"]),
    ],
)
def test_bad_input_is_a_line_each(archloom: Archloom, tmp_path: Path, arguments: list[str], lines: list[str]) -> None:
    finished = archloom("search", *arguments)
    assert finished.code == 2
    assert finished.out == ""
    errors = [line for line in finished.lines if line.startswith("error: ")]
    assert errors == [f"error: {line}" for line in lines]
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("typed", ["picturs", "picturs/"])
def test_the_nearest_folder_is_suggested(
    archloom: Archloom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    finished = archloom("search", typed)
    assert finished.code == 2 and len(finished.lines) == 1
    assert "; did you mean 'pictures'?" in finished.lines[0]


def test_a_recipe_takes_other_data_by_an_option() -> None:
    spec = resolve_search("cifar10/gdas", {"data": {"name": "digits"}}, [])
    assert spec.title == "gdas on nb201, digits, seed 0"


def test_a_data_folder_that_is_not_there_is_a_line(archloom: Archloom, tmp_path: Path) -> None:
    finished = archloom("search", "--data-dir", "missing")
    assert finished.code == 2
    assert finished.lines == [f"error: no data folder {tmp_path / 'missing'}; check --data-dir"]


def test_a_recipe_that_is_no_toml_is_a_line(archloom: Archloom, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("a = = 1")
    finished = archloom("search", "bad.toml")
    assert finished.code == 2
    assert len(finished.lines) == 1
    assert finished.lines[0].startswith("error: bad.toml is not a TOML file: ")


def test_an_out_that_is_taken_is_a_line(archloom: Archloom, finished_run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    taken = archloom("search", "-q", "--out", finished_run)
    assert taken.code == 2
    assert taken.lines == [
        f"error: {finished_run} already holds a run; `archloom resume {finished_run}` continues it, or choose another "
        "--out"
    ]
    blocked = archloom("search", "-q", "--out", "file/run")
    assert blocked.code == 2
    assert len(blocked.lines) == 1
    assert "file/run" in blocked.lines[0]


def test_problems_of_settings_are_raised_together() -> None:
    with pytest.raises(SettingError) as caught:
        resolve_search(None, {"space": {"name": "nb202"}}, ["="])
    assert len(caught.value.problems) == 2


def test_an_old_name_of_a_setting_works_and_prints_one_line(archloom: Archloom, tmp_path: Path) -> None:
    done = archloom("search", "--set", "machine.threads=1", "--set", "search.epochs=-1", "--out", tmp_path / "out")
    assert done.lines == [
        "note: machine.threads is now machine.torch_threads; the old name still works",
        "error: search.epochs must be at least 0, got -1",
    ]


def test_at_most_sets_a_limit_that_the_result_keeps(
    archloom: Archloom, tiny: tuple[str, ...], digits_table: Path, tmp_path: Path
) -> None:
    options = ("--space", "nb201_mini", "--strategy", "random_search", "--trials", "3", "--out", "run")
    finished = archloom("search", *options, "--at-most", "parameters=100e3")
    assert finished.code == 0, finished.err
    content = json.loads((tmp_path / "run" / "architecture.json").read_text(encoding="utf-8"))
    assert content["limit"]["value"] == 100e3 and content["cost"]["parameters"] == content["limit"]["cost"] <= 100e3
    assert content["final_network"] == "5 cells per stage, 16 channels, 16x16 images"
    printed = " ".join(finished.out.split())
    assert "the final network: 5 cells" in printed and "at most 100,000 allowed" in printed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("parameters", "--at-most must be METRIC=NUMBER such as latency=20, got 'parameters'"),
        ("parameters=10", "limit.value must be at least"),
        ("latency=10", "limit.metric 'latency' needs limit.source"),
        ("weights=10", "limit.metric"),
    ],
)
def test_limits_that_cannot_be_are_refused_in_one_line(archloom: Archloom, given: str, message: str) -> None:
    wrong = archloom("search", "--space", "nb201_mini", "--at-most", given, "--out", "run")
    assert wrong.code == 2 and message in wrong.err and "Traceback" not in wrong.err


def write_pictures(root: Path) -> Path:
    """Write nine pictures of each of two classes."""
    for shade, name in ((40, "cat"), (200, "dog")):
        (root / name).mkdir(parents=True)
        for number in range(9):
            Image.new("RGB", (8, 8), (shade, 10 * number, 0)).save(root / name / f"{number}.png")
    return root


def write_npz(root: Path) -> Path:
    pixels = np.arange(18 * 8 * 8, dtype=np.uint32).reshape(18, 8, 8).astype(np.uint8)
    np.savez(root / "mine.npz", images=pixels, labels=np.arange(18) % 2, classes=np.array(["cat", "dog"]))
    return root / "mine.npz"


def test_a_path_is_data_whether_an_argument_or_an_option(tmp_path: Path) -> None:
    pictures, arrays = write_pictures(tmp_path / "pictures"), write_npz(tmp_path)
    for recipe, option in (("pictures/", None), ("pictures", None), (None, "pictures")):
        found = resolve_search(recipe, {"data": {"name": option}}, [])
        assert (found.data_set.name, found.data_set.settings["path"]) == ("folder", str(pictures))
    found = resolve_search("mine.npz", {}, ["data.flip=false"])
    assert (found.data_set.name, found.data_set.settings["path"]) == ("npz", str(arrays))
    assert resolve_search("cifar10", {}, []).data_set.name == "cifar10"
    assert resolve_search("first", {"data": {"name": "pictures"}}, []).data_set.name == "folder"


def test_a_search_on_pictures_by_their_path(archloom: Archloom, without_report: None, tmp_path: Path) -> None:
    write_pictures(tmp_path / "pictures")
    small = ("--epochs", "1", "--channels", "4", "--space", "nb201_mini", "--set", "search.random_baseline_samples=2")
    finished = archloom("search", "pictures/", *small, "--set", "data.size=8", "--batch-size", "4", *NO_RACE, "-q")
    assert finished.code == 0, finished.err
    config = tomllib.loads((tmp_path / "runs" / "nb201_mini-gibbs-folder-1" / "config.toml").read_text())
    assert config["data"]["path"] == str(tmp_path / "pictures")


def test_relative_paths_of_data_start_at_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = write_pictures(tmp_path / "pictures")
    elsewhere = write_pictures(tmp_path / "data" / "pictures").parent
    monkeypatch.setenv("ARCHLOOM_DATA", str(elsewhere))
    found = resolve_search(None, {"data": {"name": "folder"}}, ["data.path=pictures"])
    assert found.data_set.settings["path"] == str(pictures)


def test_a_table_of_ones_own_is_looked_up_and_guides_only_by_validation(
    archloom: Archloom, without_report: None, tmp_path: Path
) -> None:
    space = Nb201(**SPACES["nb201_mini"].settings)
    rows = [f"{space.format(one)},{row / 2},{row / 3}" for row, one in enumerate(space.enumerate())]
    (tmp_path / "mine.csv").write_text("\n".join(["architecture,test,valid", *rows]))
    options = (
        "--space",
        "nb201_mini",
        "--strategy",
        "random_search",
        "--trials",
        "3",
        "--set",
        "search.table=mine.csv",
    )
    finished = archloom("search", *options, "--out", "run", "-q")
    assert finished.code == 0, finished.err
    found = json.loads((tmp_path / "run" / "architecture.json").read_text())
    assert found["table_entry"]["count"] == 125 and found["table_entry"]["dataset"] == "strokes"
    row = found["table_entry"]["test"] * 2
    assert found["table_entry"]["rank"] == 125 - row and found["table_entry"]["valid"] == pytest.approx(
        row / 3, abs=1e-4
    )
    config = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert config["search"]["table"] == str(tmp_path / "mine.csv")
    (tmp_path / "mine.csv").write_text("\n".join(line.rpartition(",")[0] for line in ["architecture,test,", *rows]))
    refused = archloom("search", *options, "--set", "search.score=table", "-q")
    assert refused.code == 2 and "has test scores only, and a search must not see them" in refused.lines[0]
