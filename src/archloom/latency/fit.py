"""Networks drawn by chance and timed on this machine, for a model of what any network of their space would take."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from archloom.families import build_network, deployed
from archloom.latency.prediction_timing import WARM_UP
from archloom.latency.step_timing import Clock, Step, take_turns
from archloom.objectives.linear_cost import Fit, every_feature
from archloom.searches.short_training import seeded
from archloom.spaces import Architecture, SearchSpace
from archloom.supernet import Only

TOGETHER = 10  # networks that are timed in turns, so that a busy moment hits no single one
FEWEST_NETWORKS = 50
LEAST_R2, MOST_ERROR = 0.98, 0.02  # of a model that a search can go by

Prepare = Callable[[Architecture], Step]


def enough(space: SearchSpace) -> int:
    """Networks for a model of a space: twice its features, of which a fifth is held out."""
    return max(FEWEST_NETWORKS, 2 * sum(1 for _ in every_feature(space)))


def in_torch(
    space: SearchSpace, *, classes: int, image_shape: tuple[int, int, int], batch: int, network: Mapping[str, Any]
) -> Prepare:
    """Makes the networks of architectures, each as one call of plain torch on a batch of images."""
    images = torch.rand(batch, *image_shape, generator=torch.Generator().manual_seed(0))

    def prepare(architecture: Architecture) -> Step:
        with seeded(0):
            made = build_network(
                space, Only(architecture), classes=classes, colours=image_shape[0], **deployed(network)
            ).eval()

        def call() -> object:
            with torch.inference_mode():
                return made(images)

        return call

    return prepare


def clock_for(threads: int) -> Clock:
    """With one thread the time of this process, which stands still while others run; else that of the wall."""
    return time.process_time if threads == 1 else time.perf_counter


@dataclass(frozen=True)
class Timings:
    """What was timed so far: every network relative to a constant one, and the seconds of that one at the time."""

    ratios: list[float] = field(default_factory=list)
    constants: list[float] = field(default_factory=list)

    @property
    def constant_ms(self) -> float:
        """What the constant network usually takes."""
        return 1000 * statistics.median(self.constants)

    @property
    def milliseconds(self) -> list[float]:
        return [self.constant_ms * ratio for ratio in self.ratios]

    @property
    def slowness(self) -> list[float]:
        """How slow the machine was at the time of each, as a logarithm: 0 is as usual."""
        return [math.log(1000 * constant / self.constant_ms) for constant in self.constants]

    def first(self, count: int) -> Timings:
        return Timings(self.ratios[:count], self.constants[:count])

    def add(self, more: Timings) -> None:
        self.ratios.extend(more.ratios)
        self.constants.extend(more.constants)


def timed(
    space: SearchSpace,
    prepare: Prepare,
    *,
    networks: int,
    repeats: int,
    warm_up: int = WARM_UP,
    seed: int = 0,
    clock: Clock = time.perf_counter,
    so_far: Timings | None = None,
    after_turn: Callable[[Timings], None] = lambda timings: None,
) -> tuple[list[Architecture], Timings]:
    """Architectures drawn uniformly, and what each took; those that were timed earlier are not timed again."""
    rng, timings = random.Random(seed), so_far or Timings()
    drawn = [space.sample(rng) for _ in range(networks)]
    constant = prepare(constant_of(space, seed))
    for first in range(len(timings.ratios), networks, TOGETHER):
        calls = [prepare(one) for one in drawn[first : first + TOGETHER]]
        timings.add(beside(constant, calls, repeats=repeats, warm_up=warm_up, clock=clock))
        after_turn(timings)
    return drawn, timings.first(networks)


def beside(
    constant: Step, calls: Sequence[Step], *, repeats: int, warm_up: int = WARM_UP, clock: Clock = time.perf_counter
) -> Timings:
    """Calls timed in turns, each with a constant one before and behind it.

    What is kept is the median of the ratio to these two: a machine that is shared changes its speed by half within a
    tenth of a second, and both see nearly the same of it.
    """
    turn = [constant, *(step for call in calls for step in (call, constant))]
    steps = {str(place): step for place, step in enumerate(turn)}
    taken = list(take_turns(steps, rounds=repeats, warm_up=warm_up, clock=clock).values())
    usual = statistics.median(seconds for one in taken[::2] for seconds in one)
    ratios = [_relative(*taken[place - 1 : place + 2]) for place in range(1, len(turn), 2)]
    return Timings(ratios, [usual] * len(calls))


def constant_of(space: SearchSpace, seed: int) -> Architecture:
    """The constant network: one in the middle of a few by its layers, as a busy machine slows small ones down more."""
    rng = random.Random(seed)
    ordered = sorted((space.sample(rng) for _ in range(TOGETHER)), key=lambda one: len(space.cost_features(one)))
    return ordered[TOGETHER // 2]


def _relative(before: Sequence[float], own: Sequence[float], behind: Sequence[float]) -> float:
    """The usual ratio of a call's time to that of the two around it."""
    return statistics.median(2 * mid / (left + right) for left, mid, right in zip(before, own, behind, strict=True))


def unfit(fit: Fit) -> str | None:
    """Why a model should not be gone by, and what to do; None where it may."""
    if fit.r2 >= LEAST_R2 and fit.error <= MOST_ERROR:
        return None
    more = "" if not fit.uncovered else f"; {fit.uncovered:,} of its choices were in no network it learnt from"
    return (
        f"on networks held out R2 must be at least {LEAST_R2} and the mean error at most {100 * MOST_ERROR:g} %, got "
        f"{fit.r2:.3f} and {100 * fit.error:.1f} %{more}; measure more networks (--networks) on a machine that does "
        "nothing else, or with more --repeats; or take it as it is with --force"
    )
