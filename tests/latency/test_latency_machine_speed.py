"""What a speed check covers, and that a crashing probe does no harm. Times come from an invented clock."""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Callable

import pytest
import torch

from archloom.latency import machine_speed
from archloom.latency.machine_speed import LowPrecision, Speed, StepTime, check_speed, probe_low_precision
from archloom.latency.step_timing import Workload

TINY = Workload(space="nb201", strategy="darts", channels=2, batch=2, space_settings={"nodes": 2, "cells_per_stage": 1})


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No second process and no large matrices; bf16 is never touched here."""
    monkeypatch.setattr(machine_speed, "probe_low_precision", lambda threads: LowPrecision(ratio=float(threads)))
    monkeypatch.setattr(machine_speed, "prepare_product", lambda device: lambda: None)


@pytest.fixture
def counts_seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps that do nothing but note how many threads they were given."""
    seen: list[int] = []
    monkeypatch.setattr(machine_speed, "prepare_step", lambda *_, **__: lambda: seen.append(torch.get_num_threads()))
    return seen


@pytest.mark.usefixtures("quick")
def test_every_kernel_is_timed_on_one_core_and_on_all(counts_seen: list[int]) -> None:
    before = torch.get_num_threads()
    counts = sorted({1, before, before + 2})
    announced: list[str] = []
    ticks = itertools.count(step=0.25)
    speed = check_speed(cores=before + 2, clock=lambda: next(ticks), announce=announced.append)
    wanted = {(threads, choice) for threads in counts for choice in ("plain", "torch", "auto")}
    assert {(step.threads, step.kernels) for step in speed.steps} == wanted
    assert counts_seen[: 3 * len(counts)] == 3 * counts
    assert {step.seconds for step in speed.steps} == {0.25}
    assert [product.threads for product in speed.products] == counts
    assert speed.products[0].gigaflops == pytest.approx(2 * 1024**3 / 0.25 / 1e9)
    assert speed.low_precision == LowPrecision(ratio=before + 2.0)
    assert torch.get_num_threads() == before
    assert announced[0] == "matrix products" and "round 2" in " ".join(announced)


@pytest.mark.usefixtures("quick")
def test_number_of_threads_is_restored_if_a_step_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()

    def fail(*arguments: object, **options: object) -> Callable[[], None]:
        def step() -> None:
            if torch.get_num_threads() != before:
                raise RuntimeError("no more")

        return step

    monkeypatch.setattr(machine_speed, "prepare_step", fail)
    with pytest.raises(RuntimeError, match="no more"):
        check_speed(cores=before + 2)
    assert torch.get_num_threads() == before


@pytest.mark.usefixtures("quick")
def test_real_steps_are_timed_on_every_device() -> None:
    cores = torch.get_num_threads()  # no more: threads that wait for each other would make this test slow
    speed = check_speed(cores=cores, devices=["cpu:0"], workload=TINY, clock=itertools.count().__next__)
    assert {step.device for step in speed.steps} == {"cpu", "cpu:0"}


@pytest.mark.usefixtures("quick", "counts_seen")
def test_default_kernels_are_timed_first_when_time_is_short() -> None:
    ticks = itertools.count(step=machine_speed.STEP_BUDGET / 4)
    speed = check_speed(cores=torch.get_num_threads(), clock=lambda: next(ticks))
    assert [step.kernels for step in speed.steps] == ["auto", "torch"]


def test_step_time_is_found_by_device_threads_and_kernels() -> None:
    speed = Speed((), (StepTime("cpu", 1, "auto", 0.5), StepTime("cpu", 2, "auto", 0.25)), LowPrecision())
    assert speed.step("cpu", 2, "auto") == 0.25
    assert speed.step("cpu", 2, "plain") is None


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "crashes (SIGKILL)"),
        ("import sys; sys.exit(3)", "fails (exit code 3)"),
        ("raise RuntimeError('no such type')", "fails (RuntimeError: no such type)"),
        ("import time; time.sleep(60)", "does not end within 1 s"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="signals are of POSIX systems")
def test_probe_that_crashes_is_a_result(monkeypatch: pytest.MonkeyPatch, code: str, failure: str) -> None:
    monkeypatch.setattr(machine_speed, "PROBE", code)
    assert probe_low_precision(1, seconds=1.0) == LowPrecision(failure=failure)


def test_probe_returns_the_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = json.dumps({"float32": 0.2, "bfloat16": 0.4}).replace("{", "{{").replace("}", "}}")
    monkeypatch.setattr(machine_speed, "PROBE", f"print('{answer}')")
    assert probe_low_precision(1) == LowPrecision(ratio=0.5)


def test_other_process_prints_both_times(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = []
    monkeypatch.setattr(machine_speed, "prepare_product", lambda dtype: asked.append(dtype) or (lambda: None))
    monkeypatch.setattr(machine_speed, "_leave_no_core_file", lambda: None)
    machine_speed.answer_probe(torch.get_num_threads())
    answer = json.loads(capsys.readouterr().out)
    assert asked == [torch.float32, torch.bfloat16]
    assert set(answer) == {"float32", "bfloat16"} and all(map(math.isfinite, answer.values()))


def test_probe_command_calls_answer_probe() -> None:
    compile(machine_speed.PROBE.format(threads=2), "probe", "exec")
    assert "answer_probe(2)" in machine_speed.PROBE.format(threads=2)
