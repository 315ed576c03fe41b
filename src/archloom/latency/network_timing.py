"""Time uniformly sampled networks on this machine, for a model that predicts any network of their space."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence

import torch

from archloom.core.errors import SettingError
from archloom.core.settings import settings_of
from archloom.export import FORMATS
from archloom.export.deployed import Deployed
from archloom.export.onnx import Session, onnx_bytes
from archloom.families import build_network, select_deployed_settings
from archloom.latency.prediction_timing import WARM_UP
from archloom.latency.step_timing import Clock, Step, time_rounds
from archloom.latency.timings import Timings
from archloom.objectives.cost_model_file import TimingSetup
from archloom.objectives.linear_cost import Fit, every_feature
from archloom.retrainings.model_file import ModelCard
from archloom.searches.short_training import seeded
from archloom.spaces import Architecture, SearchSpace
from archloom.supernet import Only

TOGETHER = 10  # networks timed in the same rounds, so that a busy moment hits no single one
FEWEST_NETWORKS = 50
LEAST_R2, MOST_ERROR = 0.98, 0.02  # of a model that a search can use

Prepare = Callable[[Architecture], Step]


def count_networks(space: SearchSpace) -> int:
    """Return how many networks a model of a space needs: twice its features, of which a fifth is held out."""
    return max(FEWEST_NETWORKS, 2 * sum(1 for _ in every_feature(space)))


def choose_preparation(space: SearchSpace, setup: TimingSetup) -> Prepare:
    """Return what turns an architecture into one call of its network, in torch or in ONNX Runtime."""
    return prepare_in_torch(space, setup) if setup.device == "cpu" else _prepare_in_onnxruntime(space, setup)


def prepare_in_torch(space: SearchSpace, setup: TimingSetup) -> Prepare:
    """Return a function that builds a network and returns a call of it on fixed random images."""
    colours = setup.image_shape[0]
    images = torch.rand(setup.batch, *setup.image_shape, generator=torch.Generator().manual_seed(0))

    def prepare(architecture: Architecture) -> Step:
        with seeded(0):
            settings = select_deployed_settings(setup.network)
            network = build_network(
                space, Only(architecture), classes=setup.classes, colours=colours, **settings
            ).eval()

        def call() -> object:
            with torch.inference_mode():
                return network(images)

        return call

    return prepare


def _prepare_in_onnxruntime(space: SearchSpace, setup: TimingSetup) -> Prepare:
    """Return the same for ONNX graphs of the networks."""
    if FORMATS["onnx"].missing:
        raise SettingError("--device onnxruntime needs an extra: pip install 'archloom[onnx]'")
    colours = setup.image_shape[0]

    def prepare(architecture: Architecture) -> Step:
        card = ModelCard(
            space={"name": setup.space, **settings_of(space)},
            architecture=dict(architecture),
            network=setup.network,
            classes=tuple(map(str, range(setup.classes))),
            image_shape=setup.image_shape,
            mean=(0.5,) * colours,
            std=(0.25,) * colours,
        )
        with seeded(0):
            model = Deployed(card, card.build()).eval().requires_grad_(False)
        session, images = Session(onnx_bytes(model), threads=setup.threads), model.example(setup.batch)
        return lambda: session.logits(images)

    return prepare


def choose_clock(threads: int) -> Clock:
    """Return the clock of this process for one thread, which stops while others run; else the wall clock."""
    return time.process_time if threads == 1 else time.perf_counter


def time_networks(
    space: SearchSpace,
    prepare: Prepare,
    *,
    networks: int,
    repeats: int,
    warm_up: int = WARM_UP,
    seed: int = 0,
    clock: Clock = time.perf_counter,
    earlier: Timings | None = None,
    after_group: Callable[[Timings], None] = lambda timings: None,
) -> tuple[list[Architecture], Timings]:
    """Return uniformly sampled architectures and their times; those timed earlier are not timed again."""
    rng, timings = random.Random(seed), earlier or Timings()
    architectures = [space.sample(rng) for _ in range(networks)]
    reference = prepare(choose_reference(space, seed))
    for first in range(len(timings.ratios), networks, TOGETHER):
        calls = [prepare(one) for one in architectures[first : first + TOGETHER]]
        timings.add(time_against_reference(reference, calls, repeats=repeats, warm_up=warm_up, clock=clock))
        after_group(timings)
    return architectures, timings.first(networks)


def time_against_reference(
    reference: Step, calls: Sequence[Step], *, repeats: int, warm_up: int = WARM_UP, clock: Clock = time.perf_counter
) -> Timings:
    """Time calls in the same rounds, each between two calls of a constant reference.

    The result is the median ratio to these two. A shared machine changes its speed by half within a tenth of a second,
    and neighbouring calls see nearly the same speed.
    """
    order = [reference, *(step for call in calls for step in (call, reference))]
    steps = {str(place): step for place, step in enumerate(order)}
    seconds = list(time_rounds(steps, rounds=repeats, warm_up=warm_up, clock=clock).values())
    usual = statistics.median(value for one in seconds[::2] for value in one)
    ratios = [_median_ratio(*seconds[place - 1 : place + 2]) for place in range(1, len(order), 2)]
    return Timings(ratios, [usual] * len(calls))


def choose_reference(space: SearchSpace, seed: int) -> Architecture:
    """Return the reference: the middle one of a few by layers, since a busy machine slows small networks down more."""
    rng = random.Random(seed)
    ordered = sorted((space.sample(rng) for _ in range(TOGETHER)), key=lambda one: len(space.cost_features(one)))
    return ordered[TOGETHER // 2]


def _median_ratio(before: Sequence[float], own: Sequence[float], behind: Sequence[float]) -> float:
    return statistics.median(2 * mid / (left + right) for left, mid, right in zip(before, own, behind, strict=True))


def explain_bad_fit(fit: Fit) -> str | None:
    """Return why a search should not use a model, and what to do; None if it may."""
    if fit.r2 >= LEAST_R2 and fit.error <= MOST_ERROR:
        return None
    uncovered = f"; {fit.uncovered:,} of its choices were in no training network" if fit.uncovered else ""
    return (
        f"on held-out networks R2 must be at least {LEAST_R2} and the mean error at most {100 * MOST_ERROR:g} %, got "
        f"{fit.r2:.3f} and {100 * fit.error:.1f} %{uncovered}; time more networks (--networks) on an idle machine, or "
        "with more --repeats; or write it anyway with --force"
    )
