"""Time search steps: real strategies on real shared weights, on random images of CIFAR's shape.

On a shared machine the time of the same step changes by a fifth from one minute to the next. So variants alternate, and
only times of the same rounds are compared.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from archloom import fast as kernels
from archloom.core.errors import SettingError
from archloom.core.settings import Settings, check
from archloom.data.loader import Batch
from archloom.families import build_network
from archloom.searches.short_training import seeded
from archloom.spaces import SPACES, SearchSpace
from archloom.strategies import STRATEGIES
from archloom.strategies.base import OneShot, Plan, SearchBatch
from archloom.supernet import SharedWeights, WeightSettings

IMAGE_SHAPE = (3, 32, 32)
CLASSES = 10
IMAGES, STEPS = 25_000, 10_000  # of the search that a step belongs to, for strategies that depend on them
PRODUCT_SIZE = 1024  # of the matrices: large enough for the peak, small enough for a moment

Step = Callable[[], object]
Clock = Callable[[], float]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One step of a strategy: its space, its width, and the images of each of its parts."""

    space: str
    strategy: str
    channels: int
    batch: int
    space_settings: Settings = field(default_factory=dict)
    strategy_settings: Settings = field(default_factory=dict)

    def build_space(self) -> SearchSpace:
        """Return the space, built with the settings of the workload."""
        entry = SPACES.find(self.space)
        space: SearchSpace = entry.load()(**{**entry.settings, **self.space_settings})
        return space


def prepare_step(
    workload: Workload,
    *,
    choice: kernels.KernelChoice,
    recompute: bool = False,
    channels_last: bool = True,
    mixed_precision: bool = False,
    device: str = "cpu",
    seed: int = 0,
) -> Step:
    """Build a network, a strategy and batches, and return the function that runs one step with them."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    place = torch.device(device)
    space = workload.build_space()
    strategy = _build_strategy(workload, space, seed)
    strategy.to(place)
    with kernels.use_kernels(choice):
        with seeded(seed):
            network = build_network(
                strategy.supernet_space,
                strategy.resolve(),
                classes=CLASSES,
                colours=IMAGE_SHAPE[0],
                channels=workload.channels,
            )
        network.to(device=place, memory_format=layout)  # type: ignore[call-overload]
        weights = SharedWeights(network, WeightSettings(mixed_precision=mixed_precision))
    strategy.begin(weights, Plan(IMAGES, IMAGES, workload.batch, workload.batch, steps=STEPS))
    batch = _sample_batch(workload, strategy.validation.batches, place, layout, seed)

    def step() -> object:
        with kernels.use_kernels(choice, recompute=recompute):
            return strategy.step(weights, batch)  # its metrics are numbers: a GPU has finished when they are there

    return step


def _build_strategy(workload: Workload, space: SearchSpace, seed: int) -> OneShot:
    entry = STRATEGIES.find(workload.strategy)
    kind = entry.load()
    settings, problems = check("strategy", kind, {**entry.settings, **workload.strategy_settings})
    if problems:
        raise SettingError(problems)
    strategy: OneShot = kind(space, torch.Generator().manual_seed(seed), **settings)
    return strategy


def _sample_batch(
    workload: Workload, valids: int, place: torch.device, layout: torch.memory_format, seed: int
) -> SearchBatch:
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for _ in range(1 + valids):
        images = torch.randn(workload.batch, *IMAGE_SHAPE, generator=generator)
        labels = torch.randint(CLASSES, (workload.batch,), generator=generator)
        parts.append(Batch(images.to(device=place, memory_format=layout), labels.to(place)))
    return SearchBatch(train=parts[0], valids=tuple(parts[1:]), epoch=0, epochs=1)


def time_rounds(
    steps: Mapping[str, Step],
    *,
    rounds: int,
    warm_up: int = 2,  # rounds whose times are dropped: they allocate memory and choose kernels
    budget: float = math.inf,  # seconds, warm-up included, after which no step starts
    clock: Clock = time.perf_counter,
    on_round: Callable[[int], None] = lambda number: None,  # called before every round, warm-up included
) -> dict[str, list[float]]:
    """Return the seconds of every step, round by round.

    If the budget ends the rounds early, a step that only warmed up keeps its last time; one that never ran is absent.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    start = clock()
    for number in range(warm_up + rounds):
        on_round(number)
        for name, step in steps.items():
            before = clock()
            if before - start <= budget:
                step()
                times[name].append(clock() - before)
    return {name: taken[warm_up:] or taken[-1:] for name, taken in times.items() if taken}


def prepare_product(dtype: torch.dtype = torch.float32, *, size: int = PRODUCT_SIZE, device: str = "cpu") -> Step:
    """Return the product of two square matrices as a step to time."""
    left, right = (torch.ones(size, size, dtype=dtype, device=device) for _ in range(2))
    return lambda: float((left @ right)[0, 0])  # reading a number waits for a GPU


def gigaflops(seconds: float, *, size: int = PRODUCT_SIZE) -> float:
    """Return the billions of additions and multiplications per second of one such product."""
    return 2 * size**3 / seconds / 1e9
