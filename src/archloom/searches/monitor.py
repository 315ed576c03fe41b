"""A look at the health of a one-shot search after every epoch, and rules that see a collapse coming.

What collapses look like: the derived architecture fills with operations that have no weights (skips, pools, none); and
before that, the validation loss as a function of the logits gets sharp, so that rounding them to one architecture costs
more and more. Looking changes nothing about a search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from annotated_doc import Doc
from torch import Tensor

from archloom.core.errors import require
from archloom.core.events import Record
from archloom.data.loader import Batch
from archloom.policies import Logits
from archloom.spaces import NONE, Architecture, Scores, SearchSpace
from archloom.supernet import Curvature, SharedWeights

SHARES = {"skip": "skip_connect", "none": NONE, "pool": "pool"}  # part of the names of operations


@dataclass(frozen=True, kw_only=True)
class MonitorSettings:
    """What to look at after every epoch of a one-shot search, and what to do about it."""

    action: Annotated[
        Literal["off", "warn", "stop", "roll_back"], Doc("roll_back: end as it was in the last healthy epoch")
    ] = "warn"
    eigenvalue_steps: Annotated[
        int, Doc("curvature products for the largest eigenvalue of the logits' Hessian; 0 is off")
    ] = 6
    eigenvalue_images: Annotated[int, Doc("validation images it is taken on")] = 64
    products: Annotated[
        Literal["differences", "exact"], Doc("exact: two to three times the memory, blind to kinks")
    ] = "differences"
    window: Annotated[int, Doc("epochs that eigenvalues are averaged over, and that two averages lie apart")] = 5
    growth: Annotated[float, Doc("of that average within a window, above which logits have become too sharp")] = 1.33
    quiet: Annotated[
        float, Doc("first share of the epochs that raises no alarm: what is derived from equal logits is chance")
    ] = 0.2
    largest_share: Annotated[
        float, Doc("of operations without weights in the derived architecture: one kind of them")
    ] = 0.5

    def __post_init__(self) -> None:
        require(
            {
                f"monitor.eigenvalue_steps must be 0 or more, got {self.eigenvalue_steps}": self.eigenvalue_steps >= 0,
                f"monitor.eigenvalue_images must be at least 2, got {self.eigenvalue_images}": (
                    self.eigenvalue_images >= 2
                ),
                f"monitor.window must be at least 1, got {self.window}": self.window >= 1,
                f"monitor.growth must be above 1, got {self.growth}": self.growth > 1,
                f"monitor.quiet must lie in [0, 1), got {self.quiet}": 0 <= self.quiet < 1,
                f"monitor.largest_share must lie in (0, 1], got {self.largest_share}": 0 < self.largest_share <= 1,
            }
        )


@dataclass(frozen=True)
class Alarm:
    """Why a search is unwell, and the last epoch in which it was not (from 0; -1 where it never was)."""

    reason: str
    healthy: int


class Monitor:
    """Figures of one epoch, and what the figures of all epochs so far say."""

    def __init__(self, settings: MonitorSettings, *, epochs: int) -> None:
        self.settings = settings
        self._quiet_epochs = settings.quiet * epochs

    def look(
        self,
        space: SearchSpace,
        architecture: Architecture,
        scores: Scores | None,
        *,
        policy: Logits | None,
        weights: SharedWeights,
        images: Batch,
        derived_accuracy: float,
    ) -> dict[str, Any]:
        """Shares of operations without weights, how decided the probabilities are, sharpness, and what rounding costs.

        `policy` is that of a strategy whose logits mix all operations; for others sharpness and gap mean nothing.
        """
        health: dict[str, Any] = {**shares(space, architecture)}
        if scores is not None:
            entropies = [_entropy(row) for row in scores.values()]
            health |= {"entropy": sum(entropies) / len(entropies), "entropy_least": min(entropies)}
        if policy is not None:
            health["gap"] = float(weights.score(images, policy.mixture())) - derived_accuracy
        if policy is not None and self.settings.eigenvalue_steps:
            health["eigenvalue"] = self._eigenvalue(policy, weights, images)
        return health

    def _eigenvalue(self, policy: Logits, weights: SharedWeights, images: Batch) -> float:
        count = self.settings.eigenvalue_images
        batch = Batch(images.images[:count], images.labels[:count])
        step = DIFFERENCE if self.settings.products == "differences" else None
        curvature = Curvature(weights, batch, policy.mixture, policy.values, step=step)
        values = policy.values.detach()
        start = torch.randn(values.shape, generator=torch.Generator().manual_seed(0)).to(values)
        return largest_eigenvalue(curvature.of_logits, start, steps=self.settings.eigenvalue_steps)

    def alarm(self, history: Sequence[Record]) -> Alarm | None:
        """What the records of all epochs so far say about the last one; None where all is well."""
        if not history or len(history) <= self._quiet_epochs or "health" not in history[-1]:
            return None
        return self._without_weights(history) or self._sharp(history)

    def _without_weights(self, history: Sequence[Record]) -> Alarm | None:
        limit = self.settings.largest_share
        found = [(name, history[-1]["health"][name]) for name in SHARES if history[-1]["health"][name] > limit]
        if not found:
            return None
        name, share = max(found, key=lambda pair: pair[1])
        healthy = [
            epoch for epoch, record in enumerate(history) if all(record["health"][kind] <= limit for kind in SHARES)
        ]
        return Alarm(
            f"{100 * share:.0f} % of the derived operations are '{name}', above monitor.largest_share = {limit:g}",
            max(healthy, default=-1),
        )

    def _sharp(self, history: Sequence[Record]) -> Alarm | None:
        """RobustDARTS' rule: the mean eigenvalue of the last epochs against that of as many epochs, a window before."""
        window = self.settings.window
        values = [record["health"].get("eigenvalue") for record in history]
        if len(values) <= window or None in values:
            return None
        now, before = _mean(values[-window:]), _mean(values[-2 * window : -window])
        if before <= 0 or now <= self.settings.growth * before:
            return None
        return Alarm(
            f"the largest eigenvalue of the logits' Hessian grew from {before:.3g} to {now:.3g} within {window} "
            f"epochs, more than monitor.growth = {self.settings.growth:g} times",
            len(values) - 1 - window,
        )


DIFFERENCE = 0.05  # length of the movement of all logits together; short beside what makes an option win


def shares(space: SearchSpace, architecture: Mapping[str, str]) -> dict[str, float]:
    """Of the operations that an architecture has, those of each kind without weights."""
    operations = space.operations_of(architecture) or (NONE,)
    return {name: sum(part in one for one in operations) / len(operations) for name, part in SHARES.items()}


def largest_eigenvalue(product: Callable[[Tensor], Tensor], start: Tensor, *, steps: int) -> float:
    """Of a symmetric matrix known by its products: the largest value of Lanczos after so many of them.

    It never exceeds the true one, and is exact once there are as many steps as rows. Vectors are kept orthogonal to all
    before: there are few of them, and without it rounding brings the first ones back.
    """
    basis: list[Tensor] = []
    diagonal: list[Tensor] = []
    beside: list[Tensor] = []
    vector = start / start.norm()
    for _ in range(min(steps, len(start))):
        basis.append(vector)
        image = product(vector)
        diagonal.append(vector @ image)
        for other in (*basis, *basis):  # twice is enough
            image = image - (image @ other) * other
        size = image.norm()
        if float(size) <= 1e-6 * float(torch.stack(diagonal).abs().max()):
            break  # the space that the start reaches is used up
        beside.append(size)
        vector = image / size
    matrix = torch.diag(torch.stack(diagonal))
    for place, size in enumerate(beside[: len(diagonal) - 1]):
        matrix[place, place + 1] = matrix[place + 1, place] = size
    return float(torch.linalg.eigvalsh(matrix.double()).max())


def _entropy(row: Sequence[float]) -> float:
    return float(torch.special.entr(torch.tensor(row, dtype=torch.float64)).sum())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
