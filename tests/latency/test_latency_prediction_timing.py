"""Latency by an invented clock: rounds, warm-up and percentiles."""

from __future__ import annotations

import pytest
import torch

from archloom.latency.prediction_timing import measure_latencies, use_torch_threads


def test_calls_alternate_and_warm_up_does_not_count() -> None:
    now, order = [0.0], []

    def call(name: str, first: float, step: float) -> object:
        taken = [first]

        def timed() -> None:
            order.append(name)
            now[0] += taken[0]
            taken[0] += step

        return timed

    found = measure_latencies(
        {"slow": call("slow", 0.100, 0.010), "fast": call("fast", 0.002, 0.0)},  # type: ignore[dict-item]
        repeats=11,
        warm_up=2,
        clock=lambda: now[0],
    )
    assert order == ["slow", "fast"] * 13
    slow = found["slow"]  # 120, 130, ..., 220 ms
    assert (slow.median, slow.tenth, slow.ninetieth) == pytest.approx((170, 130, 210))
    assert slow.repeats == 11
    assert found["fast"].median == found["fast"].ninetieth == pytest.approx(2)


def test_number_of_threads_is_restored() -> None:
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError), use_torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise RuntimeError
    assert torch.get_num_threads() == before
