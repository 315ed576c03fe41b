"""What `archloom doctor` prints and writes. Nothing is measured here: figures are made up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from archloom.cli.doctor import print_checkup, show_stage
from archloom.execution import installation as installation_module
from archloom.execution import survey as survey_module
from archloom.execution.installation import CompiledKernels, Installation
from archloom.execution.survey import Device, Survey
from archloom.latency import machine_speed
from archloom.latency.doctor import Checkup
from archloom.latency.machine_speed import LowPrecision, ProductSpeed, Speed, StepTime

Archloom = Callable[..., Any]

SURVEY = Survey(
    system="Linux 6", processor="Some [bold]Processor", cores=2, threads=2, capability="AVX512",
    extensions=("avx2", "fma"), devices=(Device("cuda:0", "Card", 7.5),), idle_gpu=False, load=0.1, memory_free_gb=8.0,
    memory_total_gb=16.0, environment={"OMP_NUM_THREADS": "2"},
)  # fmt: skip
INSTALLATION = Installation(
    {"archloom": "9.9", "torch": "2.99"}, CompiledKernels("not built"), {"tensorboard": ("tensorboard",)}, None, False
)
SPEED = Speed(
    (ProductSpeed("cpu", 1, 151.4), ProductSpeed("cuda:0", 2, 12345.0)),
    (StepTime("cpu", 1, "plain", 0.4321), StepTime("cpu", 1, "auto", 0.1234), StepTime("cuda:0", 2, "auto", 0.0111)),
    LowPrecision(ratio=0.5),
)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The doctor sees a machine that does not exist; what the speed check was asked is kept."""
    asked: list[dict[str, Any]] = []

    def check_speed(**options: Any) -> Speed:
        asked.append(options)
        options["announce"]("measuring")
        return SPEED

    monkeypatch.setattr(survey_module, "survey", lambda: SURVEY)
    monkeypatch.setattr(installation_module, "installation", lambda version: INSTALLATION)
    monkeypatch.setattr(machine_speed, "check_speed", check_speed)
    return asked


def test_facts_times_and_advice_are_printed(archloom: Archloom, made_up: list[dict[str, Any]]) -> None:
    finished = archloom("doctor")
    assert (finished.code, finished.err) == (0, "")
    rows = [" ".join(line.split()) for line in finished.out.splitlines()]
    for row in (
        "versions archloom 9.9, torch 2.99",
        "compiled kernels none: not built",
        "extra 'tensorboard' lacks tensorboard",
        "data folder none (ARCHLOOM_DATA is not set)",
        "processor Some [bold]Processor",
        "instruction sets AVX512 used by torch; avx2 fma",
        "cores 2, torch uses 2 threads",
        "environment OMP_NUM_THREADS=2",
        "cuda:0 Card, 7.5 GB",
        "load 0.10",
        "free memory 8.0 of 16.0 GB",
        "matrix product, 1 thread 151 GF/s",
        "matrix product, cuda:0 12,345 GF/s",
        "bf16 product 0.50x the speed of fp32",
        "one small search step plain auto",
        "1 thread 432 ms 123 ms",
        "cuda:0 - 11 ms",
        "* no compiled kernels: install a C++ compiler and reinstall archloom",
        "* bf16 has 0.5x the speed of fp32 on this machine: do not use it",
    ):
        assert row in rows
    assert (made_up[0]["cores"], made_up[0]["devices"]) == (2, ["cuda:0"])


def test_quick_measures_nothing(archloom: Archloom, made_up: list[dict[str, Any]]) -> None:
    finished = archloom("doctor", "--quick")
    assert finished.code == 0
    assert made_up == []
    assert "cores" in finished.out and "search step" not in finished.out


def test_everything_can_be_written_as_json(archloom: Archloom, made_up: list[dict[str, Any]], tmp_path: Path) -> None:
    path = tmp_path / "new" / "machine.json"
    assert archloom("doctor", "--json", path).code == 0
    written = json.loads(path.read_text())
    assert written["survey"]["devices"][0] == {"name": "cuda:0", "description": "Card", "memory_gb": 7.5}
    assert written["installation"]["kernels"]["state"] == "not built"
    assert written["speed"]["steps"][0] == {"device": "cpu", "threads": 1, "kernels": "plain", "seconds": 0.4321}
    assert written["advice"] == Checkup(SURVEY, INSTALLATION, SPEED).advice() != []
    archloom("doctor", "--quick", "--json", path)
    assert json.loads(path.read_text())["speed"] is None


def test_unwritable_file_gives_one_line(archloom: Archloom, made_up: list[Any], tmp_path: Path) -> None:
    finished = archloom("doctor", "--quick", "--json", tmp_path)
    assert finished.code == 2
    assert len(finished.lines) == 1 and finished.lines[0].startswith(f"error: cannot write {tmp_path}")


def test_this_machine_can_be_examined(archloom: Archloom) -> None:
    finished = archloom("doctor", "--quick")
    assert finished.code == 0
    assert "torch uses" in finished.out


def test_missing_system_facts_are_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    from dataclasses import replace

    silent = replace(SURVEY, load=None, memory_free_gb=None, devices=(), extensions=(), environment={})
    installed = replace(INSTALLATION, data_folder="/gone", kernels=CompiledKernels("in use", "native (avx2)"))
    print_checkup(Checkup(silent, replace(installed, data_folder_exists=True)), Console(width=100))
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for row in ("load unknown", "free memory unknown", "GPU none that torch can use", "environment nothing set"):
        assert row in rows
    assert "data folder /gone" in rows and rows[-1] == "nothing to change"
    print_checkup(Checkup(silent, installed), Console(width=100))
    assert "/gone (does not exist)" in capsys.readouterr().out


def test_bf16_crash_is_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    crashed = Speed((), (), LowPrecision(failure="crashes (SIGILL)"))
    print_checkup(Checkup(SURVEY, INSTALLATION, crashed), Console(width=100))
    assert "crashes (SIGILL)" in capsys.readouterr().out


def test_stage_is_shown_on_a_terminal_only(capsys: pytest.CaptureFixture[str]) -> None:
    for terminal in (False, True):
        with show_stage(Console(force_terminal=terminal, markup=False)) as announce:
            announce("matrix products")
        shown = "matrix products ..." in capsys.readouterr().out
        assert shown is terminal
