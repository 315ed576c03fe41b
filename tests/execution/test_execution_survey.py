"""What is read off a machine, and what is made of files that are missing or strange."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from archloom.execution import survey as module
from archloom.execution.survey import Device, load_average, survey, usable_cores


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of those where Linux tells about itself; empty."""
    for name in ("PROCESSOR_FILE", "MEMORY_FILE", "QUOTA_FILE"):
        monkeypatch.setattr(module, name, tmp_path / name)
    return tmp_path


def test_this_machine_has_a_core_and_some_memory() -> None:
    seen = survey()
    assert 1 <= seen.cores <= (os.cpu_count() or 1)
    assert seen.threads == torch.get_num_threads()
    assert seen.processor and seen.system and seen.capability


def test_processor_and_memory_are_read_from_their_files(files: Path) -> None:
    (files / "PROCESSOR_FILE").write_text(
        "model name : Fast One\nflags : fpu avx2 fma amx_bf16\nmodel name : Second\nflags : none\n"
    )
    (files / "MEMORY_FILE").write_text("MemTotal:       4194304 kB\nMemAvailable:   1572864 kB\n")
    seen = survey()
    assert (seen.processor, seen.extensions) == ("Fast One", ("avx2", "fma", "amx_bf16"))
    assert (seen.memory_total_gb, seen.memory_free_gb) == (4.0, 1.5)


def test_an_arm_processor_tells_features(files: Path) -> None:
    (files / "PROCESSOR_FILE").write_text("Features : fp asimd sve\n")
    assert survey().extensions == ("asimd", "sve")


def test_without_these_files_the_rest_is_still_told(files: Path) -> None:
    seen = survey()
    assert (seen.memory_free_gb, seen.memory_total_gb, seen.extensions) == (None, None, ())
    assert seen.cores >= 1


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("max 100000", 8),
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("20000 100000", 1),
        ("900000 100000", 8),
        ("?", 8),
    ],
)
def test_a_container_may_allow_fewer_cores(
    files: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    (files / "QUOTA_FILE").write_text(quota)
    assert usable_cores() == cores


def test_elsewhere_all_cores_count(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert usable_cores() == 6


def test_the_load_is_that_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (1.5, 2.5, 3.5), raising=False)
    assert load_average() == 1.5
    monkeypatch.delattr(os, "getloadavg")
    assert load_average() is None


def test_every_gpu_is_named_as_settings_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda number: SimpleNamespace(name=f"Card {number}", total_memory=(8 + number) * 2**30),
    )
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    seen = survey()
    assert seen.devices == (
        Device("cuda:0", "Card 0", 8.0),
        Device("cuda:1", "Card 1", 9.0),
        Device("mps", "Apple GPU"),
    )


@pytest.mark.parametrize(("cuda", "tool", "idle"), [(False, "/usr/bin/it", True), (False, None, False)])
def test_a_gpu_that_torch_cannot_use_is_noticed(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, tool: str | None, idle: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(shutil, "which", lambda name: tool)
    assert survey().idle_gpu is idle


def test_only_variables_that_are_set_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in module.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    assert survey().environment == {"OMP_WAIT_POLICY": "passive"}
