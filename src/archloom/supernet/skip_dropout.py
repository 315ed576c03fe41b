"""Dropout on identities of a supernet, so that skips do not win by training fastest (Chen et al., 2019: P-DARTS)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from archloom.core.errors import SettingError
from archloom.fast import should_recompute
from archloom.spaces import NONE, Decision
from archloom.supernet.choice import Choice
from archloom.supernet.resolve import EveryOption, MakeOption


class SkipDropout(nn.Dropout):
    """An identity that drops numbers; `SharedWeights.set_skip_dropout` sets its rate."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the image, some of its numbers zeroed while the network trains."""
        if not self.training or self.p == 0:
            return x
        if should_recompute():
            raise SettingError(
                "machine.recompute must be false with dropout on skips, whose second pass would drop other numbers"
            )
        return super().forward(x)


@dataclass(frozen=True)
class DropSkips(EveryOption):
    """Build a supernet whose identities have dropout; skips that halve the resolution have none.

    Args:
        rate: the rate at the start.
    """

    rate: float = 0.0

    def operation(self, decision: Decision, make: MakeOption) -> nn.Module:
        """Return a choice between all options, with dropout on an identity among them."""
        candidates = {option: make(option) for option in decision.options if option != NONE}
        return Choice(
            decision,
            {
                option: SkipDropout(self.rate) if type(module) is nn.Identity else module
                for option, module in candidates.items()
            },
        )
