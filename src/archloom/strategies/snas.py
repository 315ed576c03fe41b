"""SNAS: weights and logits descend together on one training loss, through soft samples (Xie et al., 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import torch
from annotated_doc import Doc

from archloom.policies.gumbel import check_temperatures, sample_concrete_gates
from archloom.spaces import SearchSpace
from archloom.strategies.base import Metrics, Preset, SearchBatch, Validation, metrics
from archloom.strategies.differentiable import Differentiable
from archloom.supernet import SharedWeights


class Snas(Differentiable):
    """One step of both on the training loss of a mixture sampled from the concrete distribution, once per batch.

    There is one level: validation images only evaluate the derived architecture. The paper anneals the temperature and
    does not say how. Here it falls linearly over the steps of the search, between the values of the public code.
    The paper's penalty on expected cost is left out.
    """

    validation = Validation(batches=0)
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {  # without the penalty on cost; the temperatures are those of the public code
            "strategy": {
                "temperature_start": 1.0,
                "temperature_end": 0.03,
                "learning_rate": 3e-4,
                "weight_decay": 1e-3,
            },
            "search": {"epochs": 150},
        },
    }

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        temperature_start: Annotated[float, Doc("of the concrete distribution, at the first step")] = 1.0,
        temperature_end: Annotated[
            float, Doc("where the last step comes to; towards 0 samples become single paths")
        ] = 0.03,
        **common: Any,
    ) -> None:
        super().__init__(space, generator, **common)
        check_temperatures(temperature_start, temperature_end)
        self._start, self._end = temperature_start, temperature_end

    def temperature(self, batch: SearchBatch) -> float:
        """Return the temperature at a step, linear over the search."""
        return self._start + (self._end - self._start) * batch.progress

    def step(self, weights: SharedWeights, batch: SearchBatch) -> Metrics:
        """Update weights and logits together, on a relaxed sample."""
        temperature = self.temperature(batch)
        gates = sample_concrete_gates(self.policy, self.generator, temperature=temperature)
        gradient = weights.gradient(weights.loss(batch.train, gates), of=self.policy.values)
        trained = weights.fit(batch.train, gates)  # the same sample and weights: the same loss
        self.descend(gradient, batch)
        return metrics(trained, temperature=temperature)
