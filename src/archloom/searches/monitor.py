"""The health of a one-shot search, measured after every epoch, and rules that detect a collapse.

A collapsing search fills its derived architecture with operations without weights (skips, pools, none). Before that,
the validation loss gets sharp as a function of the logits: discretizing them costs more and more accuracy. Measuring
changes nothing about a search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from annotated_doc import Doc
from torch import Tensor

from archloom.core.errors import require
from archloom.data.loader import Batch
from archloom.families import OperationKind, family_of
from archloom.policies import Logits
from archloom.searches.records import EpochRecord, Health
from archloom.spaces import NONE, Architecture, Scores, SearchSpace
from archloom.supernet import Curvature, SharedWeights

WEIGHTLESS = (OperationKind.SKIP, OperationKind.NONE, OperationKind.POOL)


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
        float, Doc("first share of the epochs that raises no alarm: equal logits derive random architectures")
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
    """Why a search is unhealthy, and its last healthy epoch (from 0; -1 if there was none)."""

    reason: str
    healthy: int


class Monitor:
    """Measures the health of one epoch, and decides from all epochs so far whether to warn."""

    def __init__(self, settings: MonitorSettings, *, epochs: int) -> None:
        self.settings = settings
        self._quiet_epochs = settings.quiet * epochs

    def measure(
        self,
        space: SearchSpace,
        architecture: Architecture,
        probabilities: Scores | None,
        *,
        policy: Logits | None,
        weights: SharedWeights,
        images: Batch,
        derived_score: float,
        sharpness: bool = True,  # False where there is no time for it
    ) -> Health:
        """Return shares of operations without weights, entropy, sharpness, and the accuracy lost by discretizing.

        `policy` belongs to strategies whose logits mix all operations; others have no sharpness and no gap.
        """
        share = shares(space, architecture)
        health = Health(skip=share["skip"], none=share["none"], pool=share["pool"])
        if probabilities is not None:
            entropies = [_entropy(row) for row in probabilities.values()]
            health = replace(health, entropy=_mean(entropies), entropy_least=min(entropies))
        if policy is not None:
            health = replace(health, gap=float(weights.score(images, policy.mixture())) - derived_score)
        if policy is not None and self.settings.eigenvalue_steps and sharpness:
            health = replace(health, eigenvalue=self._eigenvalue(policy, weights, images))
        return health

    def _eigenvalue(self, policy: Logits, weights: SharedWeights, images: Batch) -> float:
        batch = images.first(self.settings.eigenvalue_images)
        step = DIFFERENCE if self.settings.products == "differences" else None
        curvature = Curvature(weights, batch, policy.mixture, policy.values, step=step)
        values = policy.values.detach()
        start = torch.randn(values.shape, generator=torch.Generator().manual_seed(0)).to(values)
        return largest_eigenvalue(curvature.multiply_logit_hessian, start, steps=self.settings.eigenvalue_steps)

    def alarm(self, history: Sequence[EpochRecord]) -> Alarm | None:
        """Return what is wrong with the last epoch, given all epochs so far; None if nothing is."""
        if not history or len(history) <= self._quiet_epochs:
            return None
        healths = [record.health for record in history]
        return self._check_shares(healths) or self._check_sharpness(healths)

    def _check_shares(self, healths: Sequence[Health | None]) -> Alarm | None:
        """Warn if one kind of operation without weights fills the derived architecture."""
        limit, last = self.settings.largest_share, _shares_of(healths[-1])
        if max(last.values()) <= limit:
            return None
        name, share = max(last.items(), key=lambda pair: pair[1])
        healthy = [epoch for epoch, health in enumerate(healths) if max(_shares_of(health).values()) <= limit]
        return Alarm(
            f"{100 * share:.0f} % of the derived operations are '{name}', above monitor.largest_share = {limit:g}",
            max(healthy, default=-1),
        )

    def _check_sharpness(self, healths: Sequence[Health | None]) -> Alarm | None:
        """Apply RobustDARTS' rule: the mean eigenvalue of the last epochs against that of the window before."""
        window = self.settings.window
        values = [health.eigenvalue for health in healths if health is not None and health.eigenvalue is not None]
        if len(values) <= window or len(values) < len(healths):
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
    """Return the share of an architecture's operations that are of each kind without weights."""
    operations = space.operations_of(architecture) or (NONE,)
    kinds = [family_of(space).kind_of(operation) for operation in operations]
    return {kind.value: kinds.count(kind) / len(kinds) for kind in WEIGHTLESS}


def largest_eigenvalue(product: Callable[[Tensor], Tensor], start: Tensor, *, steps: int) -> float:
    """Return the largest eigenvalue that Lanczos finds with `steps` products of a symmetric matrix.

    It never exceeds the true one, and is exact with as many steps as rows. Vectors are kept orthogonal to all before:
    there are few of them, and without it rounding brings the first ones back.
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


def _shares_of(health: Health | None) -> dict[str, float]:
    names = [kind.value for kind in WEIGHTLESS]
    return {name: 0.0 if health is None else getattr(health, name) for name in names}


def _entropy(row: Sequence[float]) -> float:
    return float(torch.special.entr(torch.tensor(row, dtype=torch.float64)).sum())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
