"""DrNAS: descend on the concentrations of Dirichlet distributions, through sampled mixtures (Chen et al., 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import torch
from annotated_doc import Doc
from torch import Tensor

from archloom.core.errors import require
from archloom.policies.dirichlet import DirichletLogits
from archloom.policies.logits import Logits
from archloom.spaces import SearchSpace
from archloom.strategies.base import Metrics, Preset, SearchBatch, metrics
from archloom.strategies.differentiable import Differentiable
from archloom.strategies.pc_darts import PATHS_DIFFER
from archloom.strategies.step_size import TRAVEL
from archloom.supernet import EveryOption, PartialChannels, Resolve, SharedWeights, gradients_of


class DrNas(Differentiable):
    """An architecture step on validation data, then a weight step, each on a newly sampled mixture of all operations.

    Sampled mixtures explore at the start and narrow as concentrations grow. The mean of the distribution is
    discretized. The paper's progressive widening of the supernet is left out.
    """

    policy_type: ClassVar[type[Logits]] = DirichletLogits
    travel: ClassVar[float] = 2 * TRAVEL  # published with as many epochs as two searches of DARTS
    policy: DirichletLogits
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {  # of the rows on NAS-Bench-201, by the public code
            "strategy": {"learning_rate": 3e-4, "weight_decay": 1e-3, "divergence": 0.0, "parts": 1},
            "weights": {"learning_rate": 0.025, "learning_rate_end": 0.001, "weight_decay": 3e-4, "clip": 5.0},
            "search": {"epochs": 100, "batch_size": 64},
        },
    }

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        divergence: Annotated[
            float, Doc("weight of the divergence from uniform mixtures; weight_decay has the same aim and is simpler")
        ] = 0.0,
        parts: Annotated[int, Doc("of the channels, as in pc_darts; 1: all channels")] = 1,
        **common: Any,
    ) -> None:
        require(
            {
                f"strategy.divergence must be 0 or more, got {divergence}": divergence >= 0,
                f"strategy.parts must be at least 1, got {parts}": parts >= 1,
            }
        )
        super().__init__(space, generator, **common)
        self._divergence, self._parts = divergence, parts

    def resolve(self) -> Resolve:
        """Return a supernet of all channels, or of a part of them."""
        return PartialChannels(parts=self._parts) if self._parts > 1 else EveryOption()

    def remark(self) -> str:
        """Return what partial channels mean for the accuracies of paths."""
        return PATHS_DIFFER if self._parts > 1 else ""

    def step(self, weights: SharedWeights, batch: SearchBatch) -> Metrics:
        """Update the concentrations on validation images, then the weights on training images."""
        evaluated = None
        if not self.is_warming_up(batch):
            evaluated = weights.step_result(batch.valid, self.policy.sample(self.generator))
            self.descend(weights.gradient(evaluated.loss, of=self.policy.values), batch)
        return metrics(weights.fit(batch.train, self.policy.sample(self.generator)), evaluated)

    def descend(self, gradient: Tensor, batch: SearchBatch) -> None:
        """Take an optimizer step on the loss and on the divergence."""
        if self._divergence:
            (found,) = gradients_of(self._divergence * self.policy.divergence(), [self.policy.values])
            gradient = gradient + found
        super().descend(gradient, batch)
