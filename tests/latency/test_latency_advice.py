"""Advice follows from what was measured, here made up: said where it helps, and not where it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from archloom.execution.installation import CompiledKernels, Installation
from archloom.execution.survey import Device, Survey
from archloom.latency.advice import Checkup
from archloom.latency.speed_check import LowPrecision, Speed, StepTime

SURVEY = Survey(
    system="Linux", processor="One", cores=2, threads=2, capability="AVX2", extensions=(), devices=(), idle_gpu=False,
    load=0.1, memory_free_gb=8.0, memory_total_gb=16.0, environment={},
)  # fmt: skip
INSTALLATION = Installation({}, CompiledKernels("in use", "native (avx2)"), {}, None, False)


def speed(*steps: tuple[int, str, float], low: LowPrecision | None = None, device: str = "cpu") -> Speed:
    return Speed((), tuple(StepTime(device, *step) for step in steps), low or LowPrecision(ratio=1.5))


def advice(*, measured: Speed | None = None, installed: Installation = INSTALLATION, **changes: Any) -> list[str]:
    return Checkup(replace(SURVEY, **changes), installed, measured).advice()


GOOD = speed(
    (1, "plain", 0.8), (1, "torch", 0.5), (1, "auto", 0.4), (2, "plain", 0.6), (2, "torch", 0.3), (2, "auto", 0.2)
)


def test_a_healthy_machine_needs_no_advice() -> None:
    assert advice() == []
    assert advice(measured=GOOD) == []


def test_a_busy_machine_is_not_to_be_trusted() -> None:
    busy, waiting = advice(load=3.14)
    assert busy == (
        "the machine is busy (load 3.1 on 2 cores): times, and advice that rests on them, are not to be trusted"
    )
    assert "OMP_WAIT_POLICY=passive" in waiting
    assert advice(load=3.14, environment={"OMP_WAIT_POLICY": "PASSIVE"}) == [busy]
    assert len(advice(load=3.14, cores=1, threads=1)) == 1
    assert advice(load=3.14, cores=64) == []
    assert advice(load=None) == []


def test_threads_that_slow_a_step_down_are_told() -> None:
    assert advice(measured=speed((1, "auto", 0.2), (2, "auto", 0.5))) == [
        "2 threads are slower than 1 here at this size (2.5x the time of a small step): "
        "set machine.torch_threads = 1 for small searches"
    ]
    assert advice(measured=speed((1, "auto", 0.2), (2, "auto", 0.21))) == []  # may be noise


def test_cores_left_idle_are_told() -> None:
    measured = speed((1, "auto", 0.5), (2, "auto", 0.25))
    assert advice(measured=measured, threads=1, environment={"OMP_NUM_THREADS": "1"}) == [
        "torch takes 1 thread (OMP_NUM_THREADS=1), but 2 are 2.0x faster: set machine.torch_threads = 2"
    ]
    assert advice(measured=measured, threads=1) == [
        "torch takes 1 thread, but 2 are 2.0x faster: set machine.torch_threads = 2"
    ]
    assert advice(measured=measured, threads=2) == []


def test_more_threads_than_cores_are_told_once() -> None:
    measured = speed((1, "auto", 0.5), (2, "auto", 0.25), (8, "auto", 2.0))
    assert advice(measured=measured, threads=8) == [
        "torch takes 8 threads, but may use only 2 cores: set machine.torch_threads = 2"
    ]


@pytest.mark.parametrize(
    ("compiled", "line"),
    [
        (CompiledKernels("not built"), "no compiled kernels: install a C++ compiler and reinstall archloom"),
        (
            CompiledKernels("switched off", setting="off"),
            "compiled kernels are there, but not used: unset ARCHLOOM_KERNELS, which says 'off'",
        ),
        (
            CompiledKernels("not for this processor", setting="avx512"),
            "compiled kernels are there, but not used: unset ARCHLOOM_KERNELS, which says 'avx512'",
        ),
        (
            CompiledKernels("not for this processor"),
            "the compiled kernels do not run on this processor: reinstall archloom on this machine",
        ),
    ],
)
def test_missing_kernels_are_told_with_the_way_to_get_them(compiled: CompiledKernels, line: str) -> None:
    assert advice(installed=replace(INSTALLATION, kernels=compiled), measured=GOOD) == [line]


def test_kernels_that_slow_a_step_down_are_told() -> None:
    measured = speed((2, "plain", 0.3), (2, "torch", 0.5), (2, "auto", 0.6))
    assert advice(measured=measured) == [
        "compiled kernels take 1.2x the time of machine.kernels = 'torch' for a small step: set that"
    ]
    assert advice(measured=speed((2, "plain", 0.3), (2, "auto", 0.6)))[0].startswith(
        "compiled kernels take 2.0x the time of machine.kernels = 'plain'"
    )


def test_low_precision_is_judged_by_its_speed() -> None:
    assert advice(measured=replace(GOOD, low_precision=LowPrecision(ratio=0.62))) == [
        "bf16 is 0.6x of fp32 here: leave it off"
    ]
    assert advice(measured=replace(GOOD, low_precision=LowPrecision(failure="crashes (SIGILL)"))) == [
        "bf16 crashes (SIGILL) here: leave it off"
    ]


def test_a_gpu_is_worth_a_word_where_it_is_idle_or_slow() -> None:
    assert advice(idle_gpu=True)[0].startswith("there is a GPU, but this torch cannot use it")
    gpu = (Device("cuda:0", "Card", 8.0),)
    slow = StepTime("cuda:0", 2, "auto", 0.6)
    assert advice(devices=gpu, measured=replace(GOOD, steps=(*GOOD.steps, slow))) == [
        "cuda:0 takes 3.0x the time of the processor for a small step: "
        "small searches are better off with machine.device = 'cpu'"
    ]
    assert advice(devices=gpu, measured=replace(GOOD, steps=(*GOOD.steps, replace(slow, seconds=0.01)))) == []


def test_little_memory_and_a_missing_folder_are_told() -> None:
    assert advice(memory_free_gb=0.75) == [
        "only 0.8 GB of memory are free: take small batches, or close other programs"
    ]
    assert advice(memory_free_gb=None) == []
    missing = replace(INSTALLATION, data_folder="/gone")
    assert advice(installed=missing) == ["ARCHLOOM_DATA names the folder /gone, which is not there"]
    assert advice(installed=replace(missing, data_folder_exists=True)) == []
