"""Rounds of timed steps, and that a timed step is a real one. Clocks are invented."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from archloom import fast as kernels
from archloom.latency.step_timing import Workload, gigaflops, prepare_product, prepare_step, time_rounds
from archloom.strategies.base import SearchBatch
from archloom.strategies.rsps import Rsps
from archloom.supernet import SharedWeights

TINY = Workload(space="nb201", strategy="gdas", channels=2, batch=3, space_settings={"nodes": 2, "cells_per_stage": 1})


class FakeClock:
    """A clock that moves only when a step takes its time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.done: list[str] = []

    def __call__(self) -> float:
        return self.now

    def step(self, name: str, *seconds: float) -> Callable[[], None]:
        """Takes these times one after the other, the last one ever after."""
        left = list(seconds)

        def run() -> None:
            self.done.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run


def test_steps_alternate_and_warm_up_is_dropped() -> None:
    clock = FakeClock()
    rounds: list[int] = []
    times = time_rounds(
        {"a": clock.step("a", 9.0, 1.0, 2.0), "b": clock.step("b", 8.0, 4.0)},
        rounds=2,
        warm_up=1,
        clock=clock,
        on_round=rounds.append,
    )
    assert clock.done == ["a", "b", "a", "b", "a", "b"]
    assert times == {"a": [1.0, 2.0], "b": [4.0, 4.0]}
    assert rounds == [0, 1, 2]


@pytest.mark.parametrize(
    ("budget", "times"),
    [
        (100.0, {"a": [1.0] * 4, "b": [2.0] * 4}),
        (13.5, {"a": [1.0] * 2, "b": [2.0] * 2}),  # begun at 12 and 13 seconds
        (12.5, {"a": [1.0] * 2, "b": [2.0]}),
        (9.5, {"a": [1.0], "b": [5.0]}),  # of the second one nothing but the warm-up
        (4.0, {"a": [4.0], "b": [5.0]}),
        (0.5, {"a": [4.0]}),
    ],
)
def test_budget_ends_the_rounds_early(budget: float, times: dict[str, list[float]]) -> None:
    clock = FakeClock()
    steps = {"a": clock.step("a", 4.0, 1.0), "b": clock.step("b", 5.0, 2.0)}
    assert time_rounds(steps, rounds=4, warm_up=1, budget=budget, clock=clock) == times


def test_a_step_trains_weights_and_follows_its_seed() -> None:
    first, same, other = (prepare_step(TINY, choice="plain", seed=seed) for seed in (3, 3, 4))
    losses = [_loss(step()) for step in (first, same, other)]
    assert losses[0] == losses[1] != losses[2]
    assert _loss(first()) != losses[0]


def _loss(metrics: Any) -> float:
    return float(metrics["train_loss"])


@pytest.mark.parametrize(("choice", "channels_last"), [("plain", False), ("torch", True)])
def test_a_step_runs_with_the_kernels_and_the_layout_asked_for(
    monkeypatch: pytest.MonkeyPatch, choice: kernels.KernelChoice, channels_last: bool
) -> None:
    seen: list[tuple[str | None, bool, bool]] = []

    def look(self: Rsps, weights: SharedWeights, batch: SearchBatch) -> Mapping[str, float]:
        current = kernels.current_kernels()
        layout = {"memory_format": torch.channels_last}
        weight = next(value for value in weights.parameters.values() if value.dim() == 4 and value.shape[-1] == 3)
        seen.append(
            (current and current.name, batch.train.images.is_contiguous(**layout), weight.is_contiguous(**layout))
        )
        assert (len(batch.train), len(batch.valid)) == (3, 3)
        assert not torch.equal(batch.train.images, batch.valid.images)
        return {}

    monkeypatch.setattr(Rsps, "step", look)
    with kernels.use_kernels("plain" if choice == "torch" else "torch"):  # the choice outside does not matter
        prepare_step(replace(TINY, strategy="rsps"), choice=choice, channels_last=channels_last)()
    assert seen == [(None if choice == "plain" else choice, channels_last, channels_last)]


def test_a_step_rounds_in_mixed_precision_only() -> None:
    workload = replace(TINY, strategy="darts")  # every option runs, the 3x3 convolution, too
    full, same, low = (
        _loss(prepare_step(workload, choice="torch", mixed_precision=mixed)()) for mixed in (False, False, True)
    )
    assert full == same != low
    assert low == pytest.approx(full, rel=0.05)


def test_settings_reach_space_and_strategy() -> None:
    assert TINY.build_space().cardinality == 5
    second = replace(TINY, strategy="darts", strategy_settings={"order": "second", "products": "differences"})
    first = replace(TINY, strategy="darts")
    losses = [float(prepare_step(workload, choice="plain")()["valid_loss"]) for workload in (first, second)]  # type: ignore[index]
    assert losses[0] != losses[1]  # second order judges after a virtual step


def test_a_product_is_one_and_its_speed_counts_both_parts() -> None:
    assert prepare_product(size=8)() == 8.0
    assert prepare_product(torch.float64, size=4)() == 4.0
    assert gigaflops(0.5, size=1000) == pytest.approx(4.0)
