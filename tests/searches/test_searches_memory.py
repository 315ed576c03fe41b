"""A search or retraining that will not fit into the memory is refused before it starts; estimates hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import archloom
from archloom.core.errors import SettingError
from archloom.data import Facts
from archloom.execution.memory import UNSEEN, MemoryMeter
from archloom.objectives.cost import Cost
from archloom.retrainings.memory import measure_text_retraining, run_text_epoch
from archloom.retrainings.run import resolve_request
from archloom.searches import memory
from archloom.searches.memory import (
    _find_largest,
    is_far_below,
    make_images,
    make_text,
    measure_supernet,
    measure_trial,
    refuse_large_search,
    run_epoch,
    run_trial,
)
from archloom.searches.spec import SearchSpec

FACTS = Facts(classes=10, image_shape=(3, 16, 16))
HALF = 1.5  # an estimate is within this factor


def make_spec(space: str, strategy: str, **sections: Any) -> SearchSpec:
    base = {"space": {"name": space}, "strategy": {"name": strategy}, "data": {"name": "given"}}
    machine = {"device": "cpu", "torch_threads": 1, "loader_threads": 0}
    return SearchSpec.resolve({**base, "machine": machine, "search": {"epochs": 2, "batch_size": 48}, **sections})


@pytest.mark.parametrize(
    ("space", "strategy"), [("nb201_mini", "darts"), ("nb201_mini", "gdas"), ("nb201_mini", "rsps"), ("nb201", "gibbs")]
)
def test_an_estimate_is_what_whole_batches_need(space: str, strategy: str) -> None:
    spec = make_spec(space, strategy, network={"channels": 4})
    estimate = measure_supernet(spec, FACTS) / UNSEEN
    data = make_images(FACTS, 48)
    with MemoryMeter() as meter:
        run_epoch(spec, data, 48, _find_largest(spec, data))
    assert meter.peak / HALF < estimate < HALF * meter.peak


@pytest.mark.parametrize("batch", [2, 3])
def test_batches_smaller_than_those_that_are_measured_have_an_estimate(batch: int) -> None:
    spec = make_spec("nb201_mini", "rsps", search={"epochs": 1, "batch_size": batch}, network={"channels": 4})
    assert measure_supernet(spec, FACTS) > 0


def test_a_search_that_does_not_fit_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    settings = {"machine": {"memory": 0.01, "device": "cpu"}, "search": {"batch_size": 32}}
    with pytest.raises(SettingError, match=r"needs about .* GB .*machine.memory allows 0.0 GB"):
        archloom.search("nb201_mini", "gdas", "digits", epochs=1, out=tmp_path / "run", settings=settings)
    assert not (tmp_path / "run").exists()


def test_a_race_without_a_search_has_an_estimate() -> None:
    race = {"contestants": 2, "steps": 2}
    spec = make_spec("nb201_mini", "gibbs", search={"epochs": 0}, race=race, network={"channels": 4})
    refuse_large_search(spec, FACTS, None)  # it has no supernet to measure
    tight = replace(spec, machine=replace(spec.machine, memory=0.01))
    with pytest.raises(SettingError, match="the race"):
        refuse_large_search(tight, FACTS, None)


def test_a_retraining_that_does_not_fit_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    settings = {
        "space": {"name": "nb201_mini"},
        "training": {"epochs": 1},
        "data": {"split": "random"},
        "machine": {"memory": 0.01, "device": "cpu"},
    }
    cell = "|nor_conv_3x3~0|+|none~0|skip_connect~1|"
    with pytest.raises(SettingError, match=r"needs about .* GB .*use a smaller training.batch_size"):
        archloom.retrain(cell, recipe="nb201_12", data="digits", out=tmp_path / "run", settings=settings)
    assert not (tmp_path / "run").exists()


def test_nothing_is_measured_far_below_the_limit() -> None:
    cost = Cost(parameters=1000, multiply_adds=10_000)
    assert is_far_below(cost, 64, 2**30)
    assert not is_far_below(cost, 64, 2**20)


WORDS, COLUMNS = Facts(words=300), 64


def make_text_spec(strategy: str) -> SearchSpec:
    search = {"epochs": 1, "batch_size": COLUMNS, "evaluation_images": 200}
    data = {"name": "given", "segment": 5}
    return make_spec("recurrent", strategy, search=search, data=data, network={"hidden": 16})


def test_an_estimate_of_a_text_is_what_all_columns_need() -> None:
    spec = make_text_spec("gdas")
    data = make_text(WORDS, 5, COLUMNS)
    with MemoryMeter() as meter:
        run_epoch(spec, data, COLUMNS, _find_largest(spec, data))
    assert meter.peak / HALF < measure_supernet(spec, WORDS) / UNSEEN < HALF * meter.peak


@pytest.mark.parametrize("space", ["nb201_mini", "recurrent"])
def test_an_estimate_of_a_trial_is_what_its_training_needs(space: str) -> None:
    if space == "recurrent":
        spec, facts, data = make_text_spec("random_search"), WORDS, make_text(WORDS, 5, COLUMNS)
    else:
        spec, facts = make_spec(space, "random_search", network={"channels": 4}), FACTS
        data = make_images(FACTS, 48)
    with MemoryMeter() as meter:
        run_trial(spec, data, spec.search.batch_size, _find_largest(spec, data))
    assert meter.peak / HALF < measure_trial(spec, facts) / UNSEEN < HALF * meter.peak


def test_trials_that_do_not_fit_are_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    settings = {"search": {"score": "training", "trials": 1}, "machine": {"device": "cpu", "memory": 0.01}}
    with pytest.raises(SettingError, match=r"the plan needs about .* GB of memory \(this process .*, trials"):
        archloom.search("nb201_mini", "random_search", "digits", out=tmp_path / "run", settings=settings)
    assert not (tmp_path / "run").exists()


def test_a_text_retraining_that_does_not_fit_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    settings = {"machine": {"device": "cpu", "memory": 0.01}, "network": {"hidden": 8}}
    with pytest.raises(SettingError, match=r"the plan needs about .* GB of memory \(this process .*, the network"):
        archloom.retrain("darts_v2_rnn", data="pydoc", recipe="text_small", out=tmp_path / "run", settings=settings)
    assert not (tmp_path / "run").exists()


def test_an_estimate_of_a_text_retraining_is_what_all_columns_need() -> None:
    sections = {"network": {"hidden": 16}, "data": {"name": "given", "segment": 5}}
    request = resolve_request("darts_v2_rnn", recipe="text_small", overrides=sections)
    spec = replace(request.spec, training=replace(request.spec.training, batch_size=COLUMNS))
    data = make_text(WORDS, 5, COLUMNS)
    with MemoryMeter() as meter:
        run_text_epoch(spec, data, COLUMNS)
    assert meter.peak / HALF < measure_text_retraining(spec, data) / UNSEEN < HALF * meter.peak


def test_searches_that_differ_only_in_their_seeds_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []

    def measure_trial(spec: SearchSpec, facts: Facts) -> int:
        measured.append(spec.seed)
        return 1

    monkeypatch.setattr(memory, "measure_trial", measure_trial)
    spec = make_spec("nb201_mini", "random_search", network={"channels": 3})
    for seed in range(3):
        memory.refuse_large_trials(spec.with_seed(seed), FACTS, None)
    assert measured == [0]
    memory.refuse_large_trials(make_spec("nb201_mini", "random_search", network={"channels": 5}), FACTS, None)
    assert len(measured) == 2
