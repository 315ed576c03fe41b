"""Networks drawn by chance and timed on this machine, for a model of what any network of their space would take."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from archloom.engine.latency import WARM_UP
from archloom.engine.timing import Clock, Step, take_turns
from archloom.engine.training import seeded
from archloom.networks import build_network, deployed
from archloom.objectives.linear_cost import Fit, every_feature
from archloom.spaces import Architecture, SearchSpace
from archloom.supernets import Only

TOGETHER = 10  # networks that are timed in turns, so that a busy moment hits no single one
FEWEST_NETWORKS = 50
CONSTANT = "constant"  # the network of every turn
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


def timed(
    space: SearchSpace,
    prepare: Prepare,
    *,
    networks: int,
    repeats: int,
    warm_up: int = WARM_UP,
    seed: int = 0,
    clock: Clock = time.perf_counter,
    tell: Callable[[int], None] = lambda done: None,
) -> tuple[list[Architecture], list[float]]:
    """Architectures drawn uniformly, and the milliseconds of each.

    Each is timed beside one that takes part in every turn. What is kept is the median of their ratio, so that minutes
    in which the machine is slower make no network slower than others; the usual time of that one puts it into ms.
    """
    rng = random.Random(seed)
    drawn = [space.sample(rng) for _ in range(networks)]
    constant, constants, ratios = prepare(drawn[0]), [], []
    for first in range(0, networks, TOGETHER):
        tell(first)
        calls = {str(place): prepare(one) for place, one in enumerate(drawn[first : first + TOGETHER])}
        times = take_turns({CONSTANT: constant, **calls}, rounds=repeats, warm_up=warm_up, clock=clock)
        beside = times.pop(CONSTANT)
        constants += beside
        ratios += [
            statistics.median(own / other for own, other in zip(taken, beside, strict=True)) for taken in times.values()
        ]
    middle = 1000 * statistics.median(constants)
    return drawn, [middle * ratio for ratio in ratios]


def unfit(fit: Fit) -> str | None:
    """Why a model should not be gone by, and what to do; None where it may."""
    if fit.r2 >= LEAST_R2 and fit.error <= MOST_ERROR:
        return None
    more = "" if not fit.uncovered else f"; {fit.uncovered:,} of its choices were in no network it learnt from"
    return (
        f"on networks held out R2 must be at least {LEAST_R2} and the mean error at most {100 * MOST_ERROR:g} %, got "
        f"{fit.r2:.3f} and {100 * fit.error:.1f} %{more}; measure more networks (--networks), with more --repeats, on "
        "a machine that does nothing else; or take it as it is with --force"
    )
