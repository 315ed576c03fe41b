"""Which device a search gets, and what it hears when there is none."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from archloom import fast as kernels
from archloom.core.errors import SettingError
from archloom.execution import machine as local
from archloom.execution.machine import Machine, keep_memory, peak_memory_mb, pick_device


@pytest.fixture
def _threads_restored() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def _has(monkeypatch: pytest.MonkeyPatch, *, cuda: bool = False, mps: bool = False) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2 * cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(("cuda", "kind"), [(True, "cuda"), (False, "cpu")])
def test_auto_takes_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch, cuda: bool, kind: str) -> None:
    _has(monkeypatch, cuda=cuda)
    assert pick_device("auto") == torch.device(kind)


def test_a_gpu_beyond_the_last_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _has(monkeypatch, cuda=True)
    assert pick_device("cuda:1").index == 1
    with pytest.raises(SettingError, match=r"machine\.device 'cuda:2' is not there: this machine has 2 GPUs"):
        pick_device("cuda:2")


def test_a_device_that_is_there_is_taken_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    _has(monkeypatch, cuda=True, mps=True)
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("cuda") == torch.device("cuda")
    assert pick_device("mps") == torch.device("mps")


@pytest.mark.parametrize("name", ["cuda", "cuda:1", "mps", "meta", "xpu"])
def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    _has(monkeypatch)
    with pytest.raises(SettingError, match=f"^machine.device '{name}' is not available here; take 'cpu' or 'auto'$"):
        pick_device(name)


@pytest.mark.parametrize("name", ["gpu", "cuda:x", ""])
def test_what_is_no_device_at_all_is_answered_with_the_names_there_are(name: str) -> None:
    wanted = f"^machine.device must be auto, cpu, cuda, cuda:N or mps, got '{name}'$"
    with pytest.raises(SettingError, match=wanted):
        pick_device(name)


@pytest.mark.usefixtures("_threads_restored")
def test_preparing_sets_the_threads_and_gives_the_device() -> None:
    assert Machine(device="cpu", torch_threads=2).prepare() == torch.device("cpu")
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("_threads_restored")
def test_no_threads_named_leaves_them_alone() -> None:
    torch.set_num_threads(3)
    Machine(device="cpu").prepare()
    assert torch.get_num_threads() == 3


def test_negative_counts_are_all_named_at_once() -> None:
    with pytest.raises(SettingError) as caught:
        Machine(torch_threads=-1, loader_threads=-2)
    assert caught.value.problems == (
        "machine.torch_threads must lie in 0..1024, got -1",
        "machine.loader_threads must lie in 0..1024, got -2",
    )


@pytest.mark.parametrize(("platform", "megabytes"), [("linux", 3 * 2**10), ("darwin", 3.0)])
def test_memory_of_the_process_is_read_in_the_unit_of_the_platform(
    monkeypatch: pytest.MonkeyPatch, platform: str, megabytes: float
) -> None:
    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=3 * 2**20))
    monkeypatch.setattr(sys, "platform", platform)
    assert peak_memory_mb(torch.device("cpu")) == megabytes


def test_where_the_system_does_not_count_memory_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    assert peak_memory_mb(torch.device("cpu")) == 0.0


def test_this_process_uses_some_memory_but_no_terabyte() -> None:
    assert 10 < peak_memory_mb(torch.device("cpu")) < 2**20


def test_on_a_gpu_its_own_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: asked.append(device) or 5 * 2**20)
    assert peak_memory_mb(torch.device("cuda", 1)) == 5.0
    assert asked == [torch.device("cuda", 1)]


def test_a_machine_chooses_the_kernels_of_the_process(_threads_restored: None) -> None:
    try:
        Machine(kernels="plain").prepare()
        assert kernels.current_kernels() is None
        assert not kernels.should_recompute()
        Machine(recompute=True).prepare()
        assert kernels.should_recompute()
    finally:
        kernels.set_kernels("auto")


def test_freed_memory_is_asked_to_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[int, int] = {}

    def mallopt(option: int, value: int) -> int:
        asked[option] = value
        return 1

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(local.ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    assert keep_memory(123)
    assert asked == {-1: 123, -3: 123}  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h


def test_where_that_cannot_be_set_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(local.ctypes, "CDLL", lambda name: SimpleNamespace())  # another C library
    assert not keep_memory()
    monkeypatch.setattr(local.ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=lambda option, value: 0))
    assert not keep_memory()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_memory()
