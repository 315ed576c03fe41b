"""Latency by a clock that is given: what is dropped, what is told, and whose turn it is."""

from __future__ import annotations

import pytest
import torch

from archloom.latency.prediction_timing import latencies, threads_of_torch


def test_calls_take_turns_and_the_warm_up_does_not_count() -> None:
    now, order = [0.0], []

    def call(name: str, first: float, step: float) -> object:
        taken = [first]

        def timed() -> None:
            order.append(name)
            now[0] += taken[0]
            taken[0] += step

        return timed

    found = latencies(
        {"slow": call("slow", 0.100, 0.010), "quick": call("quick", 0.002, 0.0)},  # type: ignore[dict-item]
        repeats=11,
        warm_up=2,
        clock=lambda: now[0],
    )
    assert order == ["slow", "quick"] * 13
    slow = found["slow"]  # 120, 130, ..., 220 ms
    assert (slow.median, slow.tenth, slow.ninetieth) == pytest.approx((170, 130, 210))
    assert slow.repeats == 11
    assert found["quick"].median == found["quick"].ninetieth == pytest.approx(2)


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError), threads_of_torch(before + 1):
        assert torch.get_num_threads() == before + 1
        raise RuntimeError
    assert torch.get_num_threads() == before
