"""Choose a network size and a number of epochs for the images and the time there are.

The time of a step is measured on this machine for two sizes; that of the others follows from their multiply-adds. The
choice is written down as plain settings, so that a resumed run is the same run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from archloom.core.counts import count_text

AUTO = "auto"
DEFAULT_BUDGET = "30m"
TRAINING_SHARE = 0.85  # of the budget; the rest is for reading data, evaluation, and a machine that slows down
FEW_IMAGES = 5_000  # below, a network overfits
FEW_TO_PICK = 1_000  # validation images; with fewer they do not pick the epoch
EVALUATION_COST = 1 / 3  # time to evaluate an image, as a share of the time to train on it
SMALLEST_TO_REGULARIZE = 2  # index of a size: smaller networks do not overfit
LARGEST_FOR_FEW = 4  # index of the largest size for few images


@dataclass(frozen=True)
class Budget:
    """The images to train on, and the time there is."""

    images: int  # to train on
    valid: int  # to evaluate after every epoch
    side: int  # pixels
    seconds: float

    @property
    def wanted_epochs(self) -> int:
        """Return how many epochs are enough: fewer images need more of them."""
        return min(120, max(30, 200_000 // self.images))

    @property
    def most_epochs(self) -> int:
        """Return the number of epochs above which training gains little."""
        return 2 * self.wanted_epochs

    def epochs_at(self, seconds_per_image: float) -> int:
        """Return how many epochs fit."""
        return int(TRAINING_SHARE * self.seconds / self.seconds_of_epoch(seconds_per_image))

    def seconds_per_image(self, epochs: int) -> float:
        """Return how long an image may take where so many epochs have to fit."""
        return TRAINING_SHARE * self.seconds / (epochs * self.seconds_of_epoch(1.0))

    def seconds_of_epoch(self, seconds_per_image: float) -> float:
        """Return how long an epoch takes, validation included."""
        return seconds_per_image * (self.images + EVALUATION_COST * self.valid)

    def regularization_for(self, size: int) -> dict[str, Mapping[str, float | int | str]]:
        """Return the settings against overfitting for a network of a size (its index), by section."""
        few = self.images < FEW_IMAGES
        overfits = few and size >= SMALLEST_TO_REGULARIZE
        batch = 64 if self.images >= 1500 else 32 if self.images >= 300 else 16
        return {
            "network": {"drop_path": 0.1 if overfits else 0.0, "dropout": 0.2 if overfits else 0.0},
            "training": {
                "batch_size": min(batch, max(2, self.images // 2)),
                "cutout": self.side // 4 if self.side >= 16 else 0,
                # the best of many epochs by few images is a lucky one; the rate ends at 0, so the last is a good one
                "keep": "last" if self.valid < FEW_TO_PICK else "best",
            },
            "optimizer": {"weight_decay": 1e-3 if few else 5e-4, "learning_rate": 0.1 * batch / 128},
        }


@dataclass(frozen=True)
class SizeChoice:
    """A size (an index), its number of epochs, and the reason."""

    size: int
    epochs: int
    seconds: float  # that training should take
    reason: str
    most_cost: float  # multiply-adds that a network of this size may have and still get enough epochs


def choose_size(
    budget: Budget, costs: Sequence[int], measure: Callable[[int], float], *, epochs: int | None = None
) -> SizeChoice:
    """Choose the largest size that gets enough epochs.

    `costs` are multiply-adds by size, the smallest first; `measure` returns the seconds per image of a size.
    """
    allowed = costs if budget.images >= FEW_IMAGES else costs[: LARGEST_FOR_FEW + 1]
    pace = _fit_pace(allowed, measure)
    wanted = epochs or budget.wanted_epochs
    reached = [budget.epochs_at(pace.seconds(cost)) for cost in allowed]
    fitting = [size for size, count in enumerate(reached) if count >= wanted]
    size = max(fitting, default=0)
    count = epochs or max(1, min(budget.most_epochs, reached[size]))
    if len(costs) == 1:
        reason = f"its size was given; about {wanted} epochs are enough"
    elif not fitting:
        reason = (
            f"even the smallest network only fits {count_text(reached[0], 'epoch')} in the budget; use more time "
            f"for {wanted}"
        )
    elif size + 1 < len(allowed):
        kind = "this small" if budget.images < FEW_IMAGES else "of this size"
        reason = (
            f"a larger network would only fit {count_text(reached[size + 1], 'epoch')} in the budget; "
            f"a data set {kind} needs about {wanted}"
        )
    elif len(allowed) < len(costs):
        reason = f"a larger network would overfit {budget.images:,} images"
    else:
        reason = "this is the largest size"
    most = max(float(allowed[size]), pace.cost(budget.seconds_per_image(wanted)))
    return SizeChoice(size, count, count * budget.seconds_of_epoch(pace.seconds(allowed[size])), reason, most)


@dataclass(frozen=True)
class _Pace:
    """Seconds per image as a line in multiply-adds."""

    start: float
    slope: float

    def seconds(self, cost: float) -> float:
        """Return the seconds that an image takes at this cost."""
        return self.start + self.slope * cost

    def cost(self, seconds: float) -> float:
        """Return the cost at which an image takes so many seconds."""
        return (seconds - self.start) / self.slope if self.slope else math.inf


def _fit_pace(costs: Sequence[int], measure: Callable[[int], float]) -> _Pace:
    """Fit a line through the smallest size and one in the middle, both measured."""
    middle = len(costs) // 2
    if middle == 0 or costs[middle] == costs[0]:
        return _Pace(measure(0), 0.0)
    low, high = measure(0), measure(middle)
    slope = (high - low) / (costs[middle] - costs[0])
    if slope <= 0:  # a disturbance: assume that time is in proportion
        return _Pace(0.0, high / costs[middle])
    return _Pace(low - slope * costs[0], slope)
