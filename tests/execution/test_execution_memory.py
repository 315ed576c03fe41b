"""The bytes of tensors are counted, carried over to more images, and compared with a limit."""

from __future__ import annotations

import pytest
import torch

from archloom.core.errors import SettingError
from archloom.execution import memory
from archloom.execution.memory import UNSEEN, MemoryMeter, extrapolate_peak, memory_limit, refuse_too_large

KILOBYTE = 1024


def make(count: int) -> torch.Tensor:
    return torch.zeros(count * KILOBYTE // 4)


def test_tensors_count_until_they_are_freed_and_views_do_not() -> None:
    with MemoryMeter() as meter:
        first = make(4)
        view = first[:10].view(2, 5)
        assert meter.now == 4 * KILOBYTE
        second = first + 1
        assert meter.now == 8 * KILOBYTE
        del second
        assert meter.now == 4 * KILOBYTE
        del first, view
    assert (meter.now, meter.peak) == (0, 8 * KILOBYTE)


def test_what_a_backward_pass_keeps_counts() -> None:
    parameter = make(4).requires_grad_()
    with MemoryMeter() as meter:
        loss = parameter.exp().sum()
        assert meter.now >= 4 * KILOBYTE  # the exponential, which its gradient needs
        loss.backward()
    assert meter.peak >= 8 * KILOBYTE


def test_a_peak_grows_with_the_images_and_a_constant_does_not() -> None:
    weights = 1000

    def run(images: int) -> None:
        kept = [make(weights), *(make(10) for _ in range(images))]
        assert kept

    assert extrapolate_peak(run, 64) == pytest.approx(UNSEEN * (weights + 640) * KILOBYTE)


def test_a_plan_beyond_the_limit_is_refused_with_its_parts() -> None:
    needed = {"this process": 2**30, "the supernet": 3 * 2**30}
    refuse_too_large(needed, 4 * 2**30, remedy="use less")
    with pytest.raises(SettingError, match=r"about 4.0 GB .*the supernet 3.0.*machine.memory allows 3.9 GB; use less"):
        refuse_too_large(needed, int(3.9 * 2**30), remedy="use less")


def test_the_limit_is_what_is_free_unless_it_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 5 * 2**30)
    monkeypatch.setattr(memory, "resident_memory", lambda: 2**30)
    assert memory_limit(None) == 6 * 2**30  # what this process holds already is its own
    assert memory_limit(2.5) == int(2.5 * 2**30)
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    assert memory_limit(None) is None
