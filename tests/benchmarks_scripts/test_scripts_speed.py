"""The scripts that measure speed still run, and compute what they say from times. No time is looked at here."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from rich.console import Console

from archloom.core.settings import merge
from archloom.latency.step_timing import Workload

ROOT = Path(__file__).resolve().parents[2]
TINY = Workload(space="nb201", strategy="gdas", channels=2, batch=2, space_settings={"nodes": 2, "cells_per_stage": 1})


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a script of the benchmarks folder by its name."""
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # the scripts set it if it is missing; put back afterwards
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


@pytest.fixture
def speed(script: Any, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = script("speed")
    tiny = module.Measured(TINY, passes=5, sampled=True)
    monkeypatch.setattr(module, "WORKLOADS", {"tiny": tiny, "second": tiny})
    monkeypatch.setattr(module, "PEAK_SHAPES", ((2, 2, 4),))
    return module


def test_a_tiny_workload_is_measured_printed_and_written(
    speed: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "speed.json"
    (tmp_path / "elsewhere.py").write_text(
        "def make(workload, seed):\n    return lambda: print(workload.space)\n"
        "def tune(workload, seed):\n    return lambda: print('faster')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    words = ["speed", "--workload", "tiny", "--threads", "1", "--rounds", "1", "--json", str(path)]
    monkeypatch.setattr("sys.argv", [*words, "--beside", "elsewhere:make", "--strong", "elsewhere:tune"])
    speed.main()
    out = capsys.readouterr().out
    assert "tiny: 1 rounds" in out and "of peak" in out and "nb201\nfaster\n" in out and "tuned / it" in out
    written = json.loads(path.read_text())
    assert list(written["workloads"]) == ["tiny"]
    found = written["workloads"]["tiny"]
    assert list(found["variants"]) == ["plain", "torch", "auto", "again", "beside", "tuned"]
    assert {len(values) for values in found["seconds"].values()} == {1}
    assert set(found["variants"]["auto"]["gain"]) == {"plain", "beside", "tuned"}
    assert {"machine", "versions", "kernels", "threads", "wait_policy", "peak_gigaflops"} <= set(written)


def test_memory_is_that_of_a_process_of_its_own(
    speed: ModuleType, monkeypatch: pytest.MonkeyPatch, script: Any
) -> None:
    asked = []
    alone = script("one_step").Alone([0.1], 12.0)
    monkeypatch.setattr(speed, "run_alone", lambda task: asked.append(task.variant) or alone)
    options = speed._options(["--memory", "--rounds", "1", "--variant", "plain", "torch"])
    found = speed.measure(speed.WORKLOADS["tiny"], options, peak=1.0)
    assert asked == ["plain", "torch"]
    assert found["variants"]["torch"]["peak_mb"] == 12.0
    Console(width=120).print(speed.as_table("tiny", found))


def test_ratios_are_taken_round_by_round(speed: ModuleType) -> None:
    times = {"plain": [2.0, 8.0, 3.0], "auto": [1.0, 2.0, 3.0]}
    found = speed.figures(times, work=6.0, peak=12.0)
    assert found["auto"]["gain"] == {"plain": {"median": 2.0, "low": 1.5, "high": 3.0}}
    assert found["auto"]["milliseconds"]["median"] == 2000.0
    assert found["auto"]["share_of_peak"] == 0.25
    assert found["plain"]["gain"] == {}
    assert speed.spread([7.0]) == {"median": 7.0, "low": 7.0, "high": 7.0}


def test_multiply_adds_are_counted_by_shape(speed: ModuleType) -> None:
    """Two nodes, C=2, three stages of 32, 16 and 8 pixels: one edge with a 1x1 and a 3x3 convolution in each."""
    stages = ((2, 32), (4, 16), (8, 8))
    edges = sum((1 + 9) * channels**2 * size**2 for channels, size in stages)
    between = sum(
        (9 * before * after + 9 * after**2 + before * after) * size**2
        for (before, _), (after, size) in pairwise(stages)
    )
    fixed = 9 * 3 * 2 * 32**2 + between + 8 * 10 + 10
    measured = speed.Measured(TINY, passes=5)
    assert speed.multiply_adds(measured) == fixed + edges
    assert speed.multiply_adds(replace(measured, sampled=True)) == pytest.approx(fixed + edges / 5)


def test_a_retraining_steps_in_both_layouts_and_compiled(speed: ModuleType, script: Any) -> None:
    workload = script("retrain_step").RetrainWorkload(
        architecture="nb201_residual", channels=2, batch=2, space_settings={"cells_per_stage": 1}
    )
    measured = speed.Measured(workload, passes=3)
    found = speed.measure(measured, speed._options(["--rounds", "1"]), peak=1.0)
    assert list(found["variants"]) == ["plain", "torch", "auto"]
    assert found["gigaflop_per_step"] == pytest.approx(2e-9 * 3 * 2 * speed.multiply_adds(measured))
    task = script("one_step").Task(workload=workload, seed=5)
    assert script("one_step").Task.from_json(json.dumps(script("one_step").asdict(task))) == task


def test_a_step_of_a_retraining_changes_the_weights(script: Any) -> None:
    module = script("retrain_step")
    workload = module.RetrainWorkload(architecture="nb201_skips", channels=2, batch=2)
    step = workload.prepare_step(channels_last=True)
    network = step.__self__.network
    before = [parameter.detach().clone() for parameter in network.parameters()]
    step()
    step()
    assert any(not torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True))


def test_the_peak_is_that_of_the_fastest_convolution(speed: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "PEAK_SHAPES", ((2, 4, 8), (3, 4, 8)))
    monkeypatch.setattr(speed, "time_rounds", lambda steps, **_: {name: [4.0, 2.0] for name in steps})
    assert speed.peak_gigaflops(1) == pytest.approx(2e-9 * 9 * 3 * 4**2 * 8**2 / 2)


def test_every_workload_can_be_built(script: Any) -> None:
    table = script("speed").WORKLOADS
    assert len(table) == 18
    for name, measured in table.items():
        assert measured.workload.build_space().decisions, name
        assert not measured.sampled or measured.rounds >= 16


def test_a_step_alone_tells_times_and_memory(script: Any) -> None:
    one_step = script("one_step")
    alone = one_step.run_alone(one_step.Task(workload=TINY, variant="plain", rounds=2))
    assert len(alone.seconds) == 2
    assert 0 < alone.peak_mb < 1000


def test_a_step_that_fails_alone_says_why(script: Any) -> None:
    one_step = script("one_step")
    with pytest.raises(RuntimeError, match="no_such_module"):
        one_step.run_alone(one_step.Task(workload=TINY, variant="beside", beside="no_such_module:make"))


def test_a_task_survives_the_way_to_its_process(script: Any) -> None:
    one_step = script("one_step")
    task = one_step.Task(workload=TINY, variant="torch", threads=torch.get_num_threads(), rounds=3, seed=5)
    text = json.dumps(one_step.asdict(task))
    assert one_step.Task.from_json(text) == task


# --- growth


def test_growth_draws_what_it_measures(script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    growth, one_step = script("growth"), script("one_step")
    asked: list[Workload] = []

    def made_up(task: Any) -> Any:
        asked.append(task.workload)
        return one_step.Alone([1e-3 * task.workload.batch, 9.0, 0.0], 10.0 + task.workload.channels**2)

    monkeypatch.setattr(growth, "run_alone", made_up)
    monkeypatch.setattr(
        "sys.argv", ["growth", "--line", "batch", "width", "--repeats", "2", "--out", str(tmp_path / "new" / "growth")]
    )
    growth.main()
    assert (tmp_path / "new" / "growth.png").read_bytes().startswith(b"\x89PNG")
    lines = json.loads((tmp_path / "new" / "growth.json").read_text())["lines"]
    batch = lines["batch"]["darts"]
    assert batch["x"] == batch["milliseconds"] == [16, 32, 64, 96, 128]
    assert batch["fits"]["milliseconds"] == pytest.approx({"base": 0.0, "slope": 1.0, "r2": 1.0, "exponent": 1.0})
    assert lines["width"]["gdas"]["peak_mb"] == [26.0, 74.0, 266.0, 586.0, 1034.0]
    assert 0.9 < lines["width"]["gdas"]["fits"]["peak_mb"]["r2"] < 0.99
    assert len(asked) == 2 * 2 * 9  # two visits, two strategies, ten points of which the lines share one


def test_growth_measures_at_least_four_points_a_line(script: Any) -> None:
    growth = script("growth")
    for name, line in growth.LINES.items():
        assert len(line.points) >= 4, name
        for workload in line.points.values():
            workload.build_space()
    assert len(growth._points(list(growth.LINES))) == 2 * 16
    assert growth.fit([1, 2, 3], [5.0, 5.0, 5.0])["r2"] == 1.0


def test_a_draw_of_gibbs_is_counted_in_passes_and_its_sampler_grows_with_its_parameters(script: Any) -> None:
    module = script("gibbs_overhead")
    settings = merge(module.PAIR, {"logits": {"images": 2}})

    def passes(strategy: str, **chosen: Any) -> float:
        return module.count_passes(replace(TINY, strategy=strategy, strategy_settings=chosen), steps=20)

    assert passes("darts") == 2
    assert passes("gibbs", **settings, **module.EVERY_FOURTH) == 2.25  # a second look at every fourth draw
    assert passes("gibbs", **settings) == 3
    assert passes("gibbs", **settings, order="second") == 4.2  # weights: twice, and every fifth time more
    found = module.sampler_step(200, 3, rounds=1)
    assert found["numbers_per_parameter"] == 6
