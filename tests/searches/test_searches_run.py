from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

import archloom
from archloom.benchmarks.nb201 import Nb201Table
from archloom.core.errors import DataError, SettingError
from archloom.execution.loop import Interrupted
from archloom.execution.run import RunOptions
from archloom.execution.run_folder import RunFolder
from archloom.policies.posterior import Posterior
from archloom.searches import run as runs
from archloom.searches.budget import Budget
from archloom.searches.build import build_search
from archloom.searches.paths import trained_paths
from archloom.searches.report_draws import SHOWN_WITH_DRAWS
from archloom.searches.run import run_search
from archloom.searches.spec import SearchSpec
from archloom.spaces import Nb201
from archloom.strategies.rsps import Rsps

TINY = {
    "space": {"cells_per_stage": 1},
    "network": {"channels": 2},
    "search": {"batch_size": 16, "evaluation_images": 20, "random_baseline_samples": 2},
    "data": {"train_images": 48, "valid_images": 48},
    "machine": {"torch_threads": 1, "device": "cpu"},
}
FILES = {"config.toml", "metrics.jsonl", "architecture.json", "report.html", "cell.svg", "checkpoints", ".lease-2"}


def search(out: Path, strategy: str = "gdas", low: bool = False, **options) -> archloom.SearchResult:
    settings = {**TINY, "weights": {"mixed_precision": low}}
    return archloom.search("nb201", strategy, epochs=2, settings=settings, out=out, **options)


def test_a_search_returns_what_its_folder_holds(tmp_path):
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
    assert result.posterior is None  # of a strategy that draws nothing
    assert len(list((tmp_path / "run/checkpoints").iterdir())) == 2


def without_clock(path: Path) -> dict:
    stored = json.loads((path / "architecture.json").read_text())
    del stored["run"]
    return stored


def records_without_clock(path: Path) -> list[dict]:
    clocks = ("seconds", "images_per_second", "memory_mb")
    records = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key not in clocks} for record in records]


def test_interrupted_in_the_middle_of_an_epoch_and_resumed_gives_the_same_files(tmp_path):
    search(tmp_path / "whole")
    steps = iter([False, False, False, False, True])
    with pytest.raises(Interrupted):
        search(tmp_path / "parts", stop=lambda: next(steps))
    assert (
        "not finished" in (tmp_path / "parts/report.html").read_text().lower()
        or not (tmp_path / "parts/architecture.json").exists()
    )
    archloom.resume(tmp_path / "parts")
    assert without_clock(tmp_path / "parts") == without_clock(tmp_path / "whole")
    assert records_without_clock(tmp_path / "parts") == records_without_clock(tmp_path / "whole")


def test_resuming_a_complete_run_returns_it(tmp_path):
    first = search(tmp_path / "run")
    again = archloom.resume(tmp_path / "run")
    assert again.architecture == first.architecture
    assert again.to_json() == first.to_json()
    assert again.history == first.history


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
    with pytest.raises(SettingError, match=r"the run began with network\.channels = 2, now it is 3"):
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
    with pytest.raises(Interrupted):
        archloom.search(data=own, epochs=2, settings={**TINY, "data": {}}, out=run, stop=lambda: True)
    with pytest.raises(ValueError, match="pass `data=`"):
        archloom.resume(run)
    assert archloom.resume(run, data=own).text


def test_bad_data_leaves_no_folder_behind(tmp_path):
    with pytest.raises(ValueError, match=r"at least (2|two) classes|one class"):
        archloom.search(data=(torch.randn(9, 1, 8, 8), torch.zeros(9, dtype=torch.int64)), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_with_a_target_every_epoch_has_the_cost_of_its_architecture(tmp_path):
    settings = {**TINY, "target": {"metric": "parameters", "value": 1e4}}
    result = archloom.search(epochs=2, settings=settings, out=tmp_path / "run", seed=1)
    assert all(record.metrics["cost"] > 0 for record in result.history)
    same = [record.metrics["cost"] for record in result.history if record.architecture == result.architecture]
    assert set(same) <= {result.target.cost}
    page = (tmp_path / "run/report.html").read_text()
    assert "Cost and target" in page and "target: 10,000" in page
    assert "cost" not in search(tmp_path / "without").history[0].metrics


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
        "nb201_mini-gibbs-strokes-1",
        "nb201_mini-gibbs-strokes-2",
    ]


def test_black_box_search_on_the_embedded_table(tmp_path):
    settings = {"search": {"trials": 30}, "machine": {"torch_threads": 1}}
    result = archloom.search("nb201_mini", "random_search", "digits", settings=settings, out=tmp_path / "run")
    assert len(result.history) == 30
    assert result.table_entry.count == 125
    assert 1 <= result.table_entry.rank <= 125


def of_a_table(folder: Path, **search) -> dict:
    return {"data": {"directory": str(folder)}, "search": {"trials": 20, **search}, "machine": {"torch_threads": 1}}


def test_a_search_on_a_table_needs_no_images(tmp_path, nb201_dir):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "nb201").symlink_to(nb201_dir)
    result = archloom.search("nb201", "random_search", "cifar10", settings=of_a_table(folder), out=tmp_path / "run")
    assert result.data == "cifar10"
    assert result.table_entry.count == 15625
    table = Nb201Table.open(folder)
    assert result.cost.parameters == table.query(result.architecture, "cifar10", metric="params")
    short = archloom.search(
        "nb201", "random_search", "cifar10", settings=of_a_table(folder, score_epochs=12), out=tmp_path / "short"
    )
    assert [record.text for record in short.history] == [record.text for record in result.history]
    scores = [table.query(record.architecture, "cifar10", metric="valid", epochs=12) for record in short.history]
    assert [record.score for record in short.history] == scores
    assert short.history[-1].trainings == 20.0
    with pytest.raises(SettingError, match=r"search\.score_epochs must be 200 or 12 for the nb201 table, got 7"):
        archloom.search(
            "nb201", "random_search", "cifar10", settings=of_a_table(folder, score_epochs=7), out=tmp_path / "no"
        )
    with pytest.raises(DataError, match="cifar10"):  # training needs them
        archloom.search("nb201", "random_search", "cifar10", settings=of_a_table(folder, score="training"))


def test_a_run_may_leave_its_report_for_later(tmp_path):
    experiment = SearchSpec.resolve(
        {"space": {"name": "nb201_mini"}, "strategy": {"name": "random_search"}, **of_a_table(tmp_path)}
    )
    run_search(experiment, out=tmp_path / "run", options=RunOptions(report=False))
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "config.toml",
        "metrics.jsonl",
        "architecture.json",
        ".lease-2",
    }
    archloom.write_report(tmp_path / "run")
    assert (tmp_path / "run/report.html").is_file()
    (tmp_path / "run/architecture.json").unlink()  # killed just before its result was written
    again = archloom.resume(tmp_path / "run", report=False)
    assert len(again.history) == 20


def test_a_search_under_trained_weights(tmp_path):
    search(tmp_path / "shared", strategy="rsps")
    settings = {
        **TINY,
        "search": {"trials": 3, "score": "shared", "shared_run": str(tmp_path / "shared"), "evaluation_images": 20},
    }
    result = archloom.search("nb201", "regularized_evolution", settings=settings, out=tmp_path / "run")
    paths = trained_paths(tmp_path / "shared", build_search, images=20)
    assert [record.score for record in result.history] == [paths(record.architecture) for record in result.history]
    assert result.history[-1].trainings == 0.0
    with pytest.raises(SettingError, match=r"searched other decisions than those of space 'nb201_mini'"):
        archloom.search("nb201_mini", "random_search", settings={**settings, "space": {}}, out=tmp_path / "no")
    for wrong in ({"score": "shared"}, {"shared_run": "somewhere"}):
        with pytest.raises(SettingError, match=r"search\.shared_run"):
            SearchSpec.resolve({"search": wrong})


def test_interrupted_among_its_finalists_and_resumed_trains_only_the_others(tmp_path):
    own = {"race": {"contestants": 3, "steps": 1, "batch_size": 8}}
    settings = {**TINY, **own, "space": {}, "strategy": {"logits": {"images": 16}}}

    def run(name: str, stop=lambda: False) -> None:
        archloom.search("nb201_mini", "gibbs", epochs=1, settings=settings, out=tmp_path / name, stop=stop)

    def notes(name: str) -> list[dict]:
        lines = (tmp_path / name / "finalists.jsonl").read_text().splitlines()
        return [{**json.loads(line), "seconds": 0.0} for line in lines]

    run("whole")
    with pytest.raises(Interrupted):
        run("parts", stop=lambda: (tmp_path / "parts/finalists.jsonl").exists())
    assert notes("parts") == notes("whole")[:1]
    archloom.resume(tmp_path / "parts", report=False)
    assert notes("parts") == notes("whole")
    stored = [without_clock(tmp_path / name) for name in ("whole", "parts")]
    assert all(one.pop("finalists_seconds") > 0 for one in stored)
    for one in stored:
        one["finalists"] = [{**finalist, "seconds": 0.0} for finalist in one["finalists"]]
    assert stored[0] == stored[1]


def test_a_sampling_strategy_has_a_posterior_and_its_checkpoint_the_same(tmp_path):
    sampled = {"logits": {"images": 16}, "warmup": 0.0}
    settings = {**TINY, "space": {}, "strategy": sampled}
    result = archloom.search("nb201_mini", "gibbs", epochs=3, settings=settings, out=tmp_path / "run")
    stored = json.loads((tmp_path / "run/architecture.json").read_text())
    assert Posterior.from_json(stored["posterior"]) == result.posterior
    again = archloom.posterior(tmp_path / "run")
    assert list(again.runs) == [str(tmp_path / "run")]
    assert replace(again, runs=result.posterior.runs) == result.posterior
    metrics = result.history[-1].metrics
    assert {name for name in metrics if name.startswith(("a_", "w_", "entropy", "skip"))} <= SHOWN_WITH_DRAWS
    page = (tmp_path / "run/report.html").read_text()
    assert '<section id="posterior">' in page
    assert "test accuracy in the table" in page  # the packaged table knows this space


def test_importing_the_package_does_not_import_torch():
    code = "import archloom, sys; assert 'torch' not in sys.modules; archloom.search; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        archloom.nothing  # noqa: B018


@pytest.mark.parametrize(("elapsed", "is_measured"), [(None, True), (3.0, True), (20.0, False)])
def test_a_plan_that_is_late_leaves_out_the_estimate_of_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elapsed: float | None, is_measured: bool
) -> None:
    measured: list[object] = []
    monkeypatch.setattr(runs, "refuse_large_search", lambda *about: measured.append(about))
    spec = SearchSpec.resolve({"space": {"name": "nb201_mini"}, "data": {"name": "digits"}, "search": {"epochs": 1}})
    budget = None if elapsed is None else Budget(60.0, lambda: 0.0, spent=elapsed)
    runs.SearchRun(RunFolder(tmp_path), spec, None, budget)
    assert bool(measured) is is_measured


@pytest.mark.parametrize(("elapsed", "is_drawn"), [(30.0, True), (59.0, False)])
def test_a_report_that_is_late_has_no_pictures_and_says_so(tmp_path: Path, elapsed: float, is_drawn: bool) -> None:
    settings = {"search": {"epochs": 1, "batch_size": 32, "random_baseline_samples": 1}, "network": {"channels": 2}}
    settings |= {"data": {"train_images": 64, "valid_images": 64}}
    result = runs.search("nb201_mini", "gdas", "digits", out=tmp_path / "run", settings=settings)
    spec = SearchSpec.resolve(RunFolder(tmp_path / "run").config)
    late = runs.SearchRun(RunFolder(tmp_path / "run"), spec, None, Budget(60.0, lambda: 0.0, spent=elapsed))
    late.loop.history = list(result.history)
    late.write_report(result)
    page = (tmp_path / "run" / "report.html").read_text()
    assert ("Not drawn, because the budget was over" in page) is not is_drawn
    assert "Learning curves" in page and "<svg" in page  # the cells are drawn always
    runs.write_search_report(RunFolder(tmp_path / "run"))
    assert "Not drawn" not in (tmp_path / "run" / "report.html").read_text()


def test_convolutions_in_bfloat16_resume_exactly(tmp_path, monkeypatch):
    monkeypatch.setattr("archloom.execution.survey.has_bfloat16", lambda: True)
    search(tmp_path / "exact")
    search(tmp_path / "whole", low=True)
    steps = iter([False, False, False, False, True])
    with pytest.raises(Interrupted):
        search(tmp_path / "parts", low=True, stop=lambda: next(steps))
    archloom.resume(tmp_path / "parts")
    assert without_clock(tmp_path / "parts") == without_clock(tmp_path / "whole")
    whole, parts, exact = (records_without_clock(tmp_path / name) for name in ("whole", "parts", "exact"))
    assert whole == parts != exact


def test_bfloat16_needs_a_processor_that_has_it(tmp_path, monkeypatch):
    monkeypatch.setattr("archloom.execution.survey.has_bfloat16", lambda: False)
    with pytest.raises(SettingError, match=r"weights\.mixed_precision must be false on this processor"):
        search(tmp_path / "run", low=True)
