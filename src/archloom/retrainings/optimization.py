"""How the weights of one network are trained: SGD, and a learning rate that is a function of where training is.

Nothing here has a state but the optimizer's own: a schedule that is looked up rather than stepped cannot get out of
step with a run that is resumed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_doc import Doc
from torch import nn

from archloom.core.errors import require


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """SGD with momentum, and the course of its learning rate."""

    learning_rate: Annotated[float, Doc("after the warm-up, at the start of the course")] = 0.025
    learning_rate_end: Annotated[float, Doc("of cosine and linear, after the last epoch")] = 0.0
    policy: Annotated[Literal["cosine", "linear", "exponential"], Doc("the course of the learning rate")] = "cosine"
    factor: Annotated[float, Doc("of exponential: what the rate is multiplied by after every epoch")] = 0.97
    every_step: Annotated[bool, Doc("false: the rate changes from epoch to epoch only")] = True
    warmup_epochs: Annotated[int, Doc("in which the rate rises linearly")] = 0
    momentum: Annotated[float, Doc("of SGD")] = 0.9
    nesterov: Annotated[bool, Doc("look ahead along the momentum")] = False
    weight_decay: Annotated[float, Doc("of SGD")] = 3e-4
    decay_all: Annotated[bool, Doc("false: scales and shifts of normalisations, and biases, do not decay")] = True
    clip: Annotated[float, Doc("largest norm of the gradient; 0 is off")] = 5.0

    def __post_init__(self) -> None:
        rate, end, momentum = self.learning_rate, self.learning_rate_end, self.momentum
        require(
            {
                f"optimizer.learning_rate must be above 0, got {rate}": rate > 0,
                f"optimizer.learning_rate_end must be 0 or more, got {end}": end >= 0,
                f"optimizer.factor must lie in (0, 1], got {self.factor}": 0 < self.factor <= 1,
                f"optimizer.warmup_epochs must be 0 or more, got {self.warmup_epochs}": self.warmup_epochs >= 0,
                f"optimizer.momentum must be in [0, 1), got {momentum}": 0 <= momentum < 1,
                f"optimizer.nesterov must be false where momentum is 0, got {self.nesterov}": (
                    momentum > 0 or not self.nesterov
                ),
                f"optimizer.weight_decay must be 0 or more, got {self.weight_decay}": self.weight_decay >= 0,
                f"optimizer.clip must be 0 (off) or more, got {self.clip}": self.clip >= 0,
            }
        )

    def rate_at(self, epoch: float, *, epochs: float) -> float:
        """Return the learning rate after `epoch` of all epochs; parts of an epoch count with `every_step`."""
        done = epoch if self.every_step else math.floor(epoch)
        if epoch < self.warmup_epochs:
            return self.learning_rate * (math.floor(epoch) + 1) / self.warmup_epochs  # by epochs, as is usual
        done, left = done - self.warmup_epochs, epochs - self.warmup_epochs
        if self.policy == "exponential":
            return self.learning_rate * self.factor**done
        share = done / max(1, left)
        fall = (1 + math.cos(math.pi * share)) / 2 if self.policy == "cosine" else 1 - share
        return self.learning_rate_end + (self.learning_rate - self.learning_rate_end) * fall

    def build_optimizer(self, network: nn.Module) -> torch.optim.SGD:
        """Return SGD for a network, with weight decay on the parameters that should have it."""
        decaying = [p for p in network.parameters() if self.decay_all or p.ndim > 1]
        undecayed = [p for p in network.parameters() if not self.decay_all and p.ndim <= 1]
        groups = [(decaying, self.weight_decay), (undecayed, 0.0)]
        return torch.optim.SGD(
            [{"params": parameters, "weight_decay": decay} for parameters, decay in groups if parameters],
            lr=self.learning_rate,
            momentum=self.momentum,
            nesterov=self.nesterov,
            foreach=True,  # one call for all tensors, of which a deep network has a thousand
        )


def list_parameters(optimizer: torch.optim.Optimizer) -> Iterator[nn.Parameter]:
    """Return every parameter that an optimizer updates."""
    for group in optimizer.param_groups:
        yield from group["params"]
