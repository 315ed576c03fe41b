from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

import archloom
from archloom.engine.search import SearchInterrupted
from archloom.errors import CheckpointError, SettingError
from archloom.spaces import Nb201
from archloom.strategies.rsps import Rsps

TINY = {
    "space": {"cells_per_stage": 1},
    "network": {"channels": 2},
    "search": {"batch_size": 16, "evaluation_images": 20, "chance_samples": 2},
    "data": {"train_images": 48, "valid_images": 48},
    "machine": {"threads": 1, "device": "cpu"},
}
FILES = {"config.toml", "metrics.jsonl", "architecture.json", "report.html", "cell.svg", "checkpoints", ".lock"}


def search(out: Path, **options) -> archloom.SearchResult:
    return archloom.search(epochs=2, settings=TINY, out=out, **options)


def test_a_search_returns_what_its_directory_holds(tmp_path):
    result = search(tmp_path / "run", seed=3)
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES
    stored = json.loads((tmp_path / "run/architecture.json").read_text())
    assert stored["architecture"] == dict(result.architecture)
    assert result.space.parse(result.text) == result.architecture
    assert stored["seed"] == 3
    assert stored["cost"]["parameters"] > 0
    assert stored["run"]["versions"]["torch"] == torch.__version__
    assert len(result.history) == 2
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [0, 1]
    assert "<svg" in (tmp_path / "run/report.html").read_text()
    assert len(list((tmp_path / "run/checkpoints").iterdir())) == 2


def without_clock(path: Path) -> dict:
    stored = json.loads((path / "architecture.json").read_text())
    del stored["run"]
    return stored


def test_interrupted_in_the_middle_of_an_epoch_and_resumed_gives_the_same_files(tmp_path):
    search(tmp_path / "whole")
    steps = iter([False, False, False, False, True])
    with pytest.raises(SearchInterrupted):
        search(tmp_path / "parts", stop=lambda: next(steps))
    assert (
        "not finished" in (tmp_path / "parts/report.html").read_text().lower()
        or not (tmp_path / "parts/architecture.json").exists()
    )
    archloom.resume(tmp_path / "parts")
    assert without_clock(tmp_path / "parts") == without_clock(tmp_path / "whole")
    records = [
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("whole", "parts")
    ]
    for record in (*records[0], *records[1]):
        for clock in ("seconds", "images_per_second", "memory_mb"):
            del record[clock]
    assert records[0] == records[1]


def test_resuming_a_complete_run_returns_it(tmp_path):
    first = search(tmp_path / "run")
    again = archloom.resume(tmp_path / "run")
    assert again.architecture == first.architecture
    assert again.details == first.details


def test_a_run_that_was_cut_off_before_its_first_checkpoint_starts_anew(tmp_path):
    result = search(tmp_path / "run")
    for path in (tmp_path / "run/checkpoints").iterdir():
        path.unlink()
    (tmp_path / "run/architecture.json").unlink()
    again = archloom.resume(tmp_path / "run")
    assert again.architecture == result.architecture
    assert len(again.history) == 2


def test_a_damaged_newest_checkpoint_falls_back_and_says_so(tmp_path):
    wanted = search(tmp_path / "run")
    (tmp_path / "run/architecture.json").unlink()
    newest = max((tmp_path / "run/checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-7])
    warnings = []
    result = archloom.resume(tmp_path / "run", warn=warnings.append)
    assert len(warnings) == 1
    assert newest.name in warnings[0]
    assert result.architecture == wanted.architecture


def test_a_configuration_changed_under_a_run_is_noticed(tmp_path):
    search(tmp_path / "run")
    (tmp_path / "run/architecture.json").unlink()
    config = tmp_path / "run/config.toml"
    config.write_text(config.read_text().replace("channels = 2", "channels = 3"))
    with pytest.raises(CheckpointError, match=r"does not fit its config\.toml"):
        archloom.resume(tmp_path / "run")


def test_own_space_strategy_and_data(tmp_path):
    images = torch.randn(60, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(60) % 3
    settings = {**TINY, "data": {}, "space": {}, "strategy": {"candidates": 3, "candidates_each_epoch": 1}}
    for number, data in enumerate([(images, labels), TensorDataset(images, labels)]):
        result = archloom.search(
            Nb201(nodes=3, cells_per_stage=1),
            Rsps,
            data,
            epochs=1,
            settings=settings,
            out=tmp_path / str(number),
        )
        assert result.space == Nb201(nodes=3, cells_per_stage=1)
        assert 'name = "archloom.strategies.rsps:Rsps"' in (tmp_path / str(number) / "config.toml").read_text()
    with pytest.raises(SettingError, match="data must be a name"):
        archloom.search(data=3)
    with pytest.raises(SettingError, match="a stage within a strategy"):
        archloom.search(Nb201(nodes=2).restrict({"0->1": ["none"]}))


def test_own_data_is_asked_for_again_on_resume(tmp_path):
    own = torch.randn(60, 1, 8, 8), torch.arange(60) % 3
    run = tmp_path / "run"
    with pytest.raises(SearchInterrupted):
        archloom.search(data=own, epochs=2, settings={**TINY, "data": {}}, out=run, stop=lambda: True)
    with pytest.raises(ValueError, match="pass `data=`"):
        archloom.resume(run)
    assert archloom.resume(run, data=own).text


def test_bad_data_leaves_no_directory_behind(tmp_path):
    with pytest.raises(ValueError, match=r"at least (2|two) classes|one class"):
        archloom.search(data=(torch.randn(9, 1, 8, 8), torch.zeros(9, dtype=torch.int64)), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_tensorboard_events_go_into_the_run(tmp_path):
    pytest.importorskip("tensorboard")
    settings = {**TINY, "search": {**TINY["search"], "tensorboard": True}}
    archloom.search(epochs=1, settings=settings, out=tmp_path / "run")
    assert list((tmp_path / "run/tensorboard").glob("events*"))


def test_runs_are_numbered_where_no_place_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        archloom.search("nb201_mini", epochs=1, settings={**TINY, "space": {}})
    assert sorted(path.name for path in Path("runs").iterdir()) == [
        "nb201_mini-gdas-digits-1",
        "nb201_mini-gdas-digits-2",
    ]


def test_black_box_search_on_the_embedded_table(tmp_path):
    settings = {"search": {"trials": 30}, "machine": {"threads": 1}}
    result = archloom.search("nb201_mini", "random_search", "digits", settings=settings, out=tmp_path / "run")
    assert len(result.history) == 30
    assert result.standing["count"] == 125
    assert 1 <= result.standing["rank"] <= 125


def test_importing_the_package_does_not_import_torch():
    code = "import archloom, sys; assert 'torch' not in sys.modules; archloom.search; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        archloom.nothing  # noqa: B018
