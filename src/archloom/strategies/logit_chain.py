"""A chain of logits under frozen weights: draws from the posterior of the architecture parameters given the weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from archloom.data.loader import Batch
from archloom.policies import Chain, Logits
from archloom.samplers import BfgsPosterior
from archloom.strategies.logit_gradient import LogitGradient
from archloom.supernet import SharedWeights

OVERDISPERSION = 2.0  # of starts, in standard deviations of the posterior: R-hat then shows whether chains forget them

MakeSampler = Callable[[Logits, torch.Generator], BfgsPosterior]
"""A sampler of the values of a policy."""


class LogitChain:
    """One of several parallel chains, from a start of its own."""

    def __init__(
        self,
        policy: Logits,
        generator: torch.Generator,
        make_sampler: MakeSampler,
        *,
        centre: Tensor,  # around which chains start
        curvature: Tensor,  # P, from which the sampler starts
        images: int,  # of the whole validation split
        complete: Callable[[Logits, Tensor], Tensor],  # adds what does not depend on images to a gradient
    ) -> None:
        self._policy, self._images, self._complete = copy.deepcopy(policy), images, complete
        self._sampler = make_sampler(self._policy, generator)
        self._sampler.start_from(curvature)
        self.chain = Chain(centre.numel())
        self._adapting, self._mean_curvature = True, torch.zeros_like(curvature)  # over the adaptation
        self._start_around(centre, generator)

    @torch.no_grad()
    def _start_around(self, centre: Tensor, generator: torch.Generator) -> None:
        group, values = self._sampler.param_groups[0], self._policy.values
        root = self._sampler.inverse.root()[0]
        numbers = torch.randn(len(root), generator=generator, dtype=root.dtype).to(root.device)
        spread = OVERDISPERSION * (group["temperature"] / group["observations"]) ** 0.5
        values.copy_(centre.to(values) + self._policy.center((spread * root @ numbers).to(values)))

    def draw(self, weights: SharedWeights, batches: Sequence[Batch]) -> None:
        """Add one draw, by the gradient over validation batches."""
        policy = self._policy
        complete = partial(self._complete, policy)
        self._sampler.step(LogitGradient(weights, policy, batches, images=self._images, complete=complete))
        self.chain.append(policy.values)
        if self._adapting:
            self._mean_curvature.lerp_(self._sampler.inverse.matrix, 1 / len(self.chain))

    def freeze_curvature(self) -> None:
        """End the adaptation: from now on the chain has the posterior as its stationary law.

        Its curvature is the mean over the adaptation: the last one has the noise of its batches.
        """
        if self._adapting and len(self.chain) > 0:
            self._sampler.start_from(self._mean_curvature)
        self._adapting = False
        self._sampler.freeze_curvature()
