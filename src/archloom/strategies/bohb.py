"""BOHB: TPE proposes, Hyperband stops weak trials early (Falkner et al., 2018), both by Optuna."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import torch
from annotated_doc import Doc

from archloom.core.errors import require
from archloom.spaces import SearchSpace
from archloom.strategies.base import Preset, Trial
from archloom.strategies.tpe import Tpe

try:
    import optuna
except ImportError:  # an extra: the constructor reports it
    optuna = None  # type: ignore[assignment]


class Bohb(Tpe):
    """Compare scores epoch by epoch at the rungs of Hyperband's brackets.

    The first complete trial shows how many epochs a full training has. A table gives a score at once: there is nothing
    to stop early, and only the model remains, as in the public NAS-Bench-201 code.
    """

    presets: ClassVar[dict[str, Preset]] = {"paper": {"strategy": {"candidates": 4}}}

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        least_epochs: Annotated[int, Doc("before any trial is stopped")] = 1,
        reduction: Annotated[
            int, Doc("one trial in this many is promoted from each rung to the next, and trains this many times longer")
        ] = 3,
        **settings: Any,
    ) -> None:
        require(
            {
                f"strategy.least_epochs must be at least 1, got {least_epochs}": least_epochs >= 1,
                f"strategy.reduction must be at least 2, got {reduction}": reduction >= 2,
            }
        )
        self._least_epochs, self._reduction = least_epochs, reduction
        super().__init__(space, generator, **settings)

    def pruner(self) -> optuna.pruners.BasePruner:
        """Return the pruner of Hyperband."""
        return optuna.pruners.HyperbandPruner(min_resource=self._least_epochs, reduction_factor=self._reduction)

    def should_continue(self, trial: Trial, epochs: int, score: float) -> bool:
        """Return whether the trial is worth more epochs."""
        return not self.trials.report(trial, epochs, score)

    def report_pruned(self, trial: Trial, score: float) -> None:
        """Add a trial that was stopped early."""
        self.trials.add(trial, score, pruned=True)
