"""Which size of network, for how long: chosen for anybody's images by how many there are and how much time there is.

The time of a step is measured on this machine for two sizes; that of the others follows from their multiply-adds. Once
chosen, everything is written down as plain settings, so that a run that is resumed is the run that was begun.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from archloom.core.errors import SettingError

AUTO = "auto"
DEFAULT_BUDGET = "30m"
SPENT_ON_TRAINING = 0.85  # of the budget; the rest is for reading data, judging, and a machine that slows down
FEW_IMAGES = 5_000  # below, a network learns its images by heart
OF_A_STEP = 1 / 3  # what judging an image takes of the time that training on it does

SMALLEST_TO_HOLD = 2  # of these sizes: smaller ones have enough to do
LARGEST_FOR_FEW = 4  # of these sizes, counted from 0, for few images

_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(h|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}


def seconds_of(text: str) -> float:
    """`30m`, `1h30m`, `45s` in seconds."""
    cleaned = text.strip().lower()
    parts = _PART.findall(cleaned)
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if not parts or _PART.sub("", cleaned).strip() or not 0 < seconds < 1e8:
        raise SettingError(f"a budget is written like 30m, 2h or 1h30m, got '{text}'")
    return seconds


@dataclass(frozen=True)
class Job:
    """What is to be trained on, and the time there is."""

    images: int  # to train on
    valid: int  # to judge on after every epoch
    side: int  # pixels
    seconds: float

    @property
    def wanted_epochs(self) -> int:
        """Fewer images need to be seen more often."""
        return min(120, max(30, 200_000 // self.images))

    @property
    def most_epochs(self) -> int:
        """More than this would be a waste of the time there is."""
        return 2 * self.wanted_epochs

    def epochs_at(self, seconds_per_image: float) -> int:
        return int(SPENT_ON_TRAINING * self.seconds / self.seconds_of_epoch(seconds_per_image))

    def seconds_of_epoch(self, seconds_per_image: float) -> float:
        return seconds_per_image * (self.images + OF_A_STEP * self.valid)

    def held(self, size: int) -> dict[str, dict[str, Any]]:
        """How closely to hold a network of a size, by how well it could learn its images by heart."""
        few = self.images < FEW_IMAGES
        could = few and size >= SMALLEST_TO_HOLD
        batch = 64 if self.images >= 1500 else 32 if self.images >= 300 else 16
        return {
            "network": {"drop_path": 0.1 if could else 0.0, "dropout": 0.2 if could else 0.0},
            "training": {
                "batch_size": min(batch, max(2, self.images // 2)),
                "cutout": self.side // 4 if self.side >= 16 else 0,
            },
            "optimizer": {"weight_decay": 1e-3 if few else 5e-4, "learning_rate": 0.1 * batch / 128},
        }


@dataclass(frozen=True)
class Chosen:
    """A size (an index), how many epochs it gets, and why."""

    size: int
    epochs: int
    seconds: float  # that training should take
    why: str


def choose(job: Job, costs: Sequence[int], measure: Callable[[int], float], *, epochs: int | None = None) -> Chosen:
    """The largest size that gets enough epochs. `costs` are multiply-adds by size, `measure` is seconds per image."""
    allowed = costs if job.images >= FEW_IMAGES else costs[: LARGEST_FOR_FEW + 1]
    pace = _pace(allowed, measure)
    wanted = epochs or job.wanted_epochs
    reached = [job.epochs_at(pace(cost)) for cost in allowed]
    fitting = [size for size, count in enumerate(reached) if count >= wanted]
    size = max(fitting, default=0)
    count = epochs or max(1, min(job.most_epochs, reached[size]))
    if not fitting:
        why = f"the smallest network; {reached[0]} epochs are all that fit, {wanted} would be better: give it more time"
    elif size + 1 < len(allowed):
        why = f"the next larger network would get {reached[size + 1]} epochs, and so few images want {wanted}"
    elif len(allowed) < len(costs):
        why = f"a larger network would learn {job.images:,} images by heart"
    else:
        why = "the largest network considered"
    return Chosen(size, count, count * job.seconds_of_epoch(pace(allowed[size])), why)


def _pace(costs: Sequence[int], measure: Callable[[int], float]) -> Callable[[int], float]:
    """Seconds per image by multiply-adds: a line through the smallest size and one in the middle, both measured."""
    middle = len(costs) // 2
    if middle == 0 or costs[middle] == costs[0]:
        only = measure(0)
        return lambda cost: only
    low, high = measure(0), measure(middle)
    slope = (high - low) / (costs[middle] - costs[0])
    if slope <= 0:  # a disturbance: then time is taken to be in proportion
        return lambda cost: high * cost / costs[middle]
    return lambda cost: low + slope * (cost - costs[0])
