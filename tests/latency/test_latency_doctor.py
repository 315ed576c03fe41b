"""Advice of the doctor, from invented measurements: present where it helps, absent where it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from archloom.execution.installation import CompiledKernels, Installation
from archloom.execution.survey import Device, Survey
from archloom.latency.doctor import Checkup
from archloom.latency.machine_speed import LowPrecision, Speed, StepTime

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


def test_healthy_machine_gets_no_advice() -> None:
    assert advice() == []
    assert advice(measured=GOOD) == []


def test_busy_machine_gets_a_warning() -> None:
    busy, waiting = advice(load=3.14)
    assert busy == ("the machine is busy (load 3.1 on 2 cores): do not trust times and the advice based on them")
    assert "OMP_WAIT_POLICY=passive" in waiting
    assert advice(load=3.14, environment={"OMP_WAIT_POLICY": "PASSIVE"}) == [busy]
    assert len(advice(load=3.14, cores=1, threads=1)) == 1
    assert advice(load=3.14, cores=64) == []
    assert advice(load=None) == []


def test_advice_to_use_fewer_threads() -> None:
    assert advice(measured=speed((1, "auto", 0.2), (2, "auto", 0.5))) == [
        "2 threads are slower than 1 on this machine (2.5x the time of a small step): "
        "set machine.torch_threads = 1 for small searches"
    ]
    assert advice(measured=speed((1, "auto", 0.2), (2, "auto", 0.21))) == []  # may be noise


def test_advice_to_use_idle_cores() -> None:
    measured = speed((1, "auto", 0.5), (2, "auto", 0.25))
    assert advice(measured=measured, threads=1, environment={"OMP_NUM_THREADS": "1"}) == [
        "torch uses 1 thread (OMP_NUM_THREADS=1), but 2 are 2.0x faster: set machine.torch_threads = 2"
    ]
    assert advice(measured=measured, threads=1) == [
        "torch uses 1 thread, but 2 are 2.0x faster: set machine.torch_threads = 2"
    ]
    assert advice(measured=measured, threads=2) == []


def test_more_threads_than_cores_give_one_line() -> None:
    measured = speed((1, "auto", 0.5), (2, "auto", 0.25), (8, "auto", 2.0))
    assert advice(measured=measured, threads=8) == [
        "torch uses 8 threads, but may use only 2 cores: set machine.torch_threads = 2"
    ]


@pytest.mark.parametrize(
    ("compiled", "line"),
    [
        (CompiledKernels("not built"), "no compiled kernels: install a C++ compiler and reinstall archloom"),
        (
            CompiledKernels("switched off", setting="off"),
            "compiled kernels are built but not used: unset ARCHLOOM_KERNELS, which is 'off'",
        ),
        (
            CompiledKernels("not for this processor", setting="avx512"),
            "compiled kernels are built but not used: unset ARCHLOOM_KERNELS, which is 'avx512'",
        ),
        (
            CompiledKernels("not for this processor"),
            "the compiled kernels do not run on this processor: reinstall archloom on this machine",
        ),
    ],
)
def test_missing_kernels_come_with_a_fix(compiled: CompiledKernels, line: str) -> None:
    assert advice(installed=replace(INSTALLATION, kernels=compiled), measured=GOOD) == [line]


def test_slow_kernels_give_advice() -> None:
    measured = speed((2, "plain", 0.3), (2, "torch", 0.5), (2, "auto", 0.6))
    assert advice(measured=measured) == [
        "compiled kernels take 1.2x the time of machine.kernels = 'torch' for a small step: use that setting"
    ]
    assert advice(measured=speed((2, "plain", 0.3), (2, "auto", 0.6)))[0].startswith(
        "compiled kernels take 2.0x the time of machine.kernels = 'plain'"
    )


def test_low_precision_advice_depends_on_its_speed() -> None:
    assert advice(measured=replace(GOOD, low_precision=LowPrecision(ratio=0.62))) == [
        "bf16 has 0.6x the speed of fp32 on this machine: do not use it"
    ]
    assert advice(measured=replace(GOOD, low_precision=LowPrecision(failure="crashes (SIGILL)"))) == [
        "bf16 crashes (SIGILL) on this machine: do not use it"
    ]
    assert advice(measured=replace(GOOD, low_precision=LowPrecision(ratio=2.2))) == [
        "bf16 has 2.2x the speed of fp32 on this machine: retrain with training.mixed_precision = true"
    ]
    assert not advice(measured=replace(GOOD, low_precision=LowPrecision(ratio=1.2)))


def test_idle_or_slow_gpu_gives_advice() -> None:
    assert advice(idle_gpu=True)[0].startswith("there is a GPU, but this torch cannot use it")
    gpu = (Device("cuda:0", "Card", 8.0),)
    slow = StepTime("cuda:0", 2, "auto", 0.6)
    assert advice(devices=gpu, measured=replace(GOOD, steps=(*GOOD.steps, slow))) == [
        "cuda:0 takes 3.0x the time of the processor for a small step: use machine.device = 'cpu' for small searches"
    ]
    assert advice(devices=gpu, measured=replace(GOOD, steps=(*GOOD.steps, replace(slow, seconds=0.01)))) == []


def test_little_memory_and_a_missing_folder_give_advice() -> None:
    assert advice(memory_free_gb=0.75) == ["only 0.8 GB of memory are free: use small batches, or close other programs"]
    assert advice(memory_free_gb=None) == []
    missing = replace(INSTALLATION, data_folder="/gone")
    assert advice(installed=missing) == ["ARCHLOOM_DATA names the folder /gone, which does not exist"]
    assert advice(installed=replace(missing, data_folder_exists=True)) == []
