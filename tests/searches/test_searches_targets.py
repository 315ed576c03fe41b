"""From the section `target` to where its cost comes from; models in files, and those that do not fit."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from archloom.benchmarks.digits import DigitsTable
from archloom.core.errors import ArchloomError, BenchmarkError, DataError, SettingError
from archloom.core.settings import settings_of
from archloom.data import Facts
from archloom.objectives import CostTable
from archloom.objectives.cost_model_file import CostModelFile, TimingSetup
from archloom.objectives.linear_cost import fit_linear_cost
from archloom.objectives.target import TargetSettings
from archloom.searches.final_network import FinalNetwork
from archloom.searches.spec import SearchSpec
from archloom.searches.target_check import check_target
from archloom.searches.targets import find_target
from archloom.spaces import SPACES, Nb201

ENTRY = SPACES["nb201_mini"]
SPACE = ENTRY.load()(**ENTRY.settings)
SETUP = TimingSetup(
    space="nb201_mini",
    space_settings={},
    classes=10,
    image_shape=(3, 8, 8),
    batch=1,
    network={},
    device="cpu",
    threads=1,
    repeats=30,
    seed=0,
    versions={},
)


def cost(architecture) -> float:
    return 1.0 + sum(map(len, architecture.values()))


def write(path: Path) -> Path:
    rng = random.Random(0)
    drawn = [SPACE.sample(rng) for _ in range(80)]
    fit = fit_linear_cost(SPACE, drawn, [cost(one) for one in drawn])
    CostModelFile.from_fit(fit, SETUP, constant_ms=5.0, forced=False).write(path)
    return path


def found(table=None, **settings):
    section = TargetSettings(**settings)
    final = FinalNetwork(SPACE, {"channels": 4}, Facts(10, (3, 8, 8)))
    return find_target(section, SPACE, table=table, final=final)


def test_no_target_unless_asked_for():
    assert found() is None


@pytest.mark.parametrize("metric", ["parameters", "multiply_adds"])
def test_counts_are_of_the_final_network(metric):
    target = found(metric=metric, value=1e4)
    drawn = SPACE.sample(random.Random(0))
    table = CostTable(SPACE, classes=10, image_shape=(3, 8, 8), channels=4)
    assert target.cost(drawn) == getattr(table.cost(drawn), metric)


def test_a_model_comes_back_from_its_file(tmp_path):
    path = write(tmp_path / "here.json")
    target = found(metric="latency", value=20.0, source=str(path))
    for seed in range(10):
        drawn = SPACE.sample(random.Random(seed))
        assert target.cost(drawn) == pytest.approx(cost(drawn), rel=1e-3)
    assert target.source.provenance == "here.json (cpu, 1 threads, batch 1)"
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["networks"] == 80 and content["held_out_r2"] > 0.99 and content["unit"] == "ms"


def test_a_model_of_networks_laid_out_otherwise_says_so(tmp_path):
    path = write(tmp_path / "here.json")
    content = json.loads(path.read_text(encoding="utf-8"))
    for settings, caveat in (
        (settings_of(SPACE), ""),
        ({**settings_of(SPACE), "cells_per_stage": 7}, "of networks with another space.cells_per_stage"),
    ):
        path.write_text(json.dumps({**content, "space_settings": settings}), encoding="utf-8")
        target = found(metric="latency", value=20.0, source=str(path))
        assert target.source.caveat == caveat
        sentence = check_target(target, SPACE.sample(random.Random(0)), list).sentence
        assert ("of networks with another" in sentence) is bool(caveat)


def test_a_model_of_other_decisions_is_refused(tmp_path):
    path = write(tmp_path / "here.json")
    with pytest.raises(SettingError, match="was fitted for other decisions"):
        CostModelFile.read(path).to_source(Nb201(), path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "archloom cost model"}', "nonsense", '{"kind": 3}'])
def test_a_file_that_is_no_model_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"bad.json is no model of archloom latency fit"):
        CostModelFile.read(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ArchloomError, match="cannot read"):
        CostModelFile.read(tmp_path / "none.json")


def test_a_device_needs_a_table_and_one_that_knows_it():
    with pytest.raises(SettingError, match=r"target.source 'pixel3' needs a benchmark table"):
        found(metric="latency", value=3.0, source="pixel3")
    with pytest.raises(BenchmarkError, match="knows no latencies, asked for 'pixel3'"):
        found(DigitsTable.find(None), metric="latency", value=3.0, source="pixel3")


def test_ones_own_latencies(tmp_path):
    path = tmp_path / "phone.csv"
    path.write_text("\n".join(f"{SPACE.format(one)},{cost(one)}" for one in SPACE.enumerate()), encoding="utf-8")
    target = found(DigitsTable.find(None), metric="latency", value=20.0, source=str(path))
    drawn = SPACE.sample(random.Random(3))
    assert target.cost(drawn) == cost(drawn)


# --- in an experiment


def test_the_section_is_resolved_checked_and_anchored(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    given = {"target": {"metric": "latency", "value": 20, "source": "here.json"}}
    experiment = SearchSpec.resolve(given)
    assert experiment.target.source == str(tmp_path / "here.json")
    assert SearchSpec.resolve(experiment.to_settings()).target == experiment.target
    device = SearchSpec.resolve({"target": {"metric": "latency", "value": 20, "source": "pixel3"}})
    assert device.target.source == "pixel3"
    with pytest.raises(SettingError, match=r"unknown setting 'target.vale'; did you mean 'value'"):
        SearchSpec.resolve({"target": {"vale": 3}})


def test_studies_that_were_begun_before_there_were_targets_go_on():
    assert not any(name.startswith("target.") for name in SearchSpec.resolve({}).determining_settings())
    aimed = SearchSpec.resolve({"target": {"metric": "parameters", "value": 1e4}})
    assert aimed.determining_settings()["target.value"] == 1e4


def test_a_model_of_other_networks_says_so(tmp_path):
    path = write(tmp_path / "here.json")
    model = CostModelFile.read(path)
    assert model.to_source(SPACE, path, image_shape=(1, 8, 8)).caveat == ""
    assert model.to_source(SPACE, path, image_shape=(3, 32, 32)).caveat == "for images of 8x8"
    timed = replace(model, setup=replace(SETUP, network={"channels": 16}, space_settings={"cells_per_stage": 5}))
    wanted = "of networks with another network.channels, space.cells_per_stage"
    assert timed.to_source(SPACE, path, network={"channels": 4}).caveat == wanted
