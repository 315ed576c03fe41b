"""A pipeline's file: what it may say, what it becomes, and that mistakes are told before anything runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from archloom.core.errors import SettingError
from archloom.core.recipes import find_pipeline, find_recipe, shipped, summary
from archloom.core.settings import merge, read_toml
from archloom.data import DataSet
from archloom.execution import machine
from archloom.pipelines import spec as module
from archloom.pipelines.spec import PipelineSpec, epochs_that_fit
from archloom.searches.build import build_search
from archloom.searches.loop import SearchLoop
from archloom.testing import make_tiny_data
from archloom.testing.held_out import check_held_out

SHIPPED = [name for name in shipped() if name.startswith("run/")]
GIVEN: dict[str, Any] = {
    "searches": 3,
    "retrainings": 2,
    "search": {"space": {"name": "nb201_mini"}, "search": {"epochs": 2}},
    "retrain": {"recipe": "nb201_12", "training": {"epochs": 4}},
}


def test_searches_have_seeds_and_a_thread_each(tmp_path: Path) -> None:
    jobs = PipelineSpec.resolve(GIVEN).searches(tmp_path)
    assert [(job.seed, job.spec.seed) for job in jobs] == [(0, 0), (1, 1), (2, 2)]
    assert [job.folder for job in jobs] == [tmp_path / "searches" / f"seed-{seed}" for seed in range(3)]
    assert {job.spec.machine.torch_threads for job in jobs} == {1}
    assert PipelineSpec.resolve({**GIVEN, "seeds": "4,9"}).seeds == (4, 9)
    one = PipelineSpec.resolve({"searches": 1, "search": {"data": {"name": "cifar10"}}})
    assert one.search.machine.torch_threads == 0  # one search alone has all cores


def test_retrainings_of_the_best_or_of_all(tmp_path: Path) -> None:
    jobs = PipelineSpec.resolve(GIVEN).retrainings(tmp_path, [2])
    assert [job.name for job in jobs] == ["search-2-seed-0", "search-2-seed-1"]
    assert jobs[1].source == tmp_path / "searches" / "seed-2" and jobs[1].seed == 1
    assert jobs[0].recipe == "nb201_12" and jobs[0].budget is None
    assert jobs[0].settings == {"machine": {"torch_threads": 1}, "training": {"epochs": 4}}
    assert len(PipelineSpec.resolve(GIVEN).retrainings(tmp_path, [0, 1, 2])) == 6


def test_short_trainings_only_where_something_is_picked(tmp_path: Path) -> None:
    assert PipelineSpec.resolve(GIVEN).short_trainings(tmp_path) == []
    short = PipelineSpec.resolve({**GIVEN, "pick_epochs": 7}).short_trainings(tmp_path)
    assert [job.search for job in short] == [0, 1, 2] and all(job.short for job in short)
    assert short[0].settings["training"] == {"epochs": 7, "keep": "last"}
    assert short[0].folder == tmp_path / "picking" / "search-0"
    assert PipelineSpec.resolve({**GIVEN, "pick_epochs": 7, "protocol": "repeats"}).short_trainings(tmp_path) == []
    assert PipelineSpec.resolve({**GIVEN, "pick_epochs": 7, "searches": 1}).short_trainings(tmp_path) == []


def test_what_is_written_gives_the_same_pipeline_and_needs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('seed = 3\n[space]\nname = "nb201_mini"\n[search]\nepochs = 2\n')
    made = PipelineSpec.resolve({**GIVEN, "search": {"recipe": "mine.toml"}, "seeds": [1, 5]}, beside=tmp_path)
    assert made.search.search.epochs == 2
    made.write(tmp_path / "out")
    (tmp_path / "mine.toml").unlink()
    again, folder = PipelineSpec.open(tmp_path / "out", tmp_path)
    assert folder == tmp_path / "out"
    assert again.to_settings() == made.to_settings()
    assert (again.search, again.seeds, again.retrain) == (made.search, (1, 5), made.retrain)
    fewer, _ = PipelineSpec.open(tmp_path / "out", tmp_path, overrides={"searches": 1})
    assert fewer.seeds == (0,)


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"searches": 0}, "searches must lie in 1..1000, got 0"),
        ({"retrainings": 0}, "retrainings must lie in 1..1000, got 0"),
        ({"pick": "test"}, "pick must be one of validation, got 'test'"),
        ({"pick_epochs": -1}, "pick_epochs must be 0 or more, got -1"),
        ({"export": ["onx"]}, "export: unknown format 'onx'; did you mean 'onnx'?"),
        ({"budget": "soon"}, "a budget is written like 30m, 2h or 1h30m, got 'soon'"),
        ({"serches": 2}, "unknown setting 'serches'; did you mean 'searches'?"),
        ({"seeds": "x"}, "seeds must be numbers"),
        ({"search": {"seed": 3}}, "search: a pipeline has seeds, not a seed"),
        ({"search": {"recipe": "frst"}}, "search: no recipe 'frst'; did you mean 'first'?"),
        ({"search": {"strategy": {"foo": 1}}}, "search: unknown setting 'strategy.foo'"),
        ({"retrain": {"trainig": {}}}, "retrain: unknown section 'trainig'; did you mean 'training'?"),
        ({"retrain": {"recipe": 3}}, "retrain: recipe must be the name of a recipe"),
    ],
)
def test_mistakes_are_lines(wrong: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingError) as caught:
        PipelineSpec.resolve({**GIVEN, **wrong})
    assert str(caught.value).startswith(line)


def test_epochs_follow_from_the_time_of_a_step() -> None:
    """10 steps an epoch, 2 s a step: 20 s an epoch; the first steps, which are slow, do not count."""
    now, steps = [0.0], [0]

    def advance() -> None:
        now[0] += 50.0 if steps[0] < 3 else 2.0
        steps[0] += 1

    def fit(seconds: float) -> int:
        steps[0] = 0
        search: Any = SimpleNamespace(advance=advance, units_per_record=10)
        return epochs_that_fit(search, seconds, most=30, clock=lambda: now[0])

    assert fit(250.0) == 10  # four fifths of it
    assert fit(1e6) == 30 and fit(1.0) == 3


def test_a_budget_is_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[float] = []

    def fit(search: Any, seconds: float, *, most: int) -> int:
        measured.append(seconds)
        return 5

    monkeypatch.setattr(module, "epochs_that_fit", fit)
    monkeypatch.setattr(module, "build_search", lambda experiment: None)
    monkeypatch.setattr(machine, "usable_cores", lambda: 3)
    given = {**GIVEN, "budget": "10m", "retrain": {"recipe": "auto"}}
    begun, folder = PipelineSpec.open(given, tmp_path)
    assert measured == [240.0] and begun.search.search.epochs == 5
    assert begun.retrainings(folder, [0])[0].budget == "300s"  # two side by side
    begun.write(folder)
    again, _ = PipelineSpec.open(given, tmp_path)
    assert measured == [240.0] and again.search == begun.search
    PipelineSpec.open({**given, "budget": "20m"}, tmp_path)
    assert measured == [240.0, 480.0]


# --- shipped ones


def test_there_are_shipped_pipelines() -> None:
    assert SHIPPED == ["run/first", "run/folder", "run/gdas_cifar10", "run/repeats"]
    with pytest.raises(SettingError, match="'run/first' is a whole pipeline: archloom run run/first"):
        find_recipe("run/first")
    with pytest.raises(SettingError, match="no pipeline 'frst'"):
        find_pipeline("frst")


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_pipelines_resolve(name: str) -> None:
    path = find_pipeline(name)
    assert path == find_pipeline(name.removeprefix("run/"))
    assert summary(path).endswith(".") and path.read_text(encoding="utf-8").startswith("# ")
    PipelineSpec.resolve(read_toml(path), beside=path.parent)


def test_shipped_pipelines_are_the_protocols_they_name() -> None:
    def settings(name: str) -> Any:
        return PipelineSpec.resolve(read_toml(find_pipeline(name))).settings

    assert (settings("gdas_cifar10").protocol, settings("gdas_cifar10").searches) == ("best_of_searches", 4)
    assert (settings("repeats").protocol, settings("repeats").searches) == ("repeats", 5)
    assert settings("folder").export == ["onnx"]


def test_searches_of_a_pipeline_learn_nothing_from_examples_that_are_held_out() -> None:
    """What the race and the comparison of `archloom run` evaluate on, as in a search of its own."""
    small = {
        "space": {"name": "nb201_mini"},
        "strategy": {"name": "gdas"},
        "data": {"name": "given"},
        "network": {"channels": 2},
        "search": {"epochs": 1, "batch_size": 8, "evaluation_images": 8, "random_baseline_samples": 2},
        "machine": {"torch_threads": 1, "device": "cpu"},
    }

    def make(*, data: DataSet, **sections: Any) -> SearchLoop[Any]:
        return build_search(PipelineSpec.resolve({"searches": 1, "search": merge(small, sections)}).search, data=data)

    check_held_out(make, make_tiny_data())
