"""Averaging that a bump in the validation loss starts: SGD becomes NT-ASGD (Merity et al., 2018).

From then on the model is the mean of the weights after every step. The steps themselves go on at the full rate.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn

from archloom.core.state import StateDict


def should_average(losses: Sequence[float], loss: float, *, patience: int) -> bool:
    """Return whether the validation loss of an epoch starts the averaging, given those of the epochs before.

    It does if it is above the lowest one that is older than `patience` epochs: a single bump starts nothing.
    """
    older = losses[: len(losses) - patience] if len(losses) > patience else []
    return bool(older) and loss > min(older)


class RunningMean:
    """The mean of a network's weights over steps, as a network of its own.

    With `skips_first` it is the mean of `torch.optim.ASGD`, which leaves out the first iterate once there is a second.
    """

    def __init__(self, network: nn.Module, *, skips_first: bool = False) -> None:
        self.network = copy.deepcopy(network)
        self.steps = 0
        self._skipped = 1 if skips_first else 0

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        """Take the weights of a step into the mean."""
        self.steps += 1
        share = 1 / max(1, self.steps - self._skipped)
        for mean, weight in zip(self.network.parameters(), network.parameters(), strict=True):
            mean.lerp_(weight.detach(), share)

    def state_dict(self) -> StateDict:
        """Return everything that a checkpoint must hold."""
        return {"network": self.network.state_dict(), "steps": self.steps}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        self.network.load_state_dict(state["network"])
        self.steps = state["steps"]
