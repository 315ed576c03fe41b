"""GDAS: train one Gumbel-sampled path at falling temperature (Dong & Yang, 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_doc import Doc

from archloom.core.errors import require
from archloom.families import family_of
from archloom.policies import sample_gumbel_gates
from archloom.policies.gumbel import Gradient, check_temperatures
from archloom.spaces import SearchSpace
from archloom.strategies.base import RECURRENT_WEIGHTS, Metrics, Preset, SearchBatch, metrics
from archloom.strategies.differentiable import Differentiable
from archloom.supernet import Gates, SharedWeights

_RECURRENT = {
    "temperature_end": 1.0,
    "anneal": "epoch",
    "learning_rate": 3e-3,
    "weight_decay": 1e-3,
    "first_beta": 0.9,
}


class Gdas(Differentiable):
    """Alternate a weight step and an architecture step, each on a newly sampled path."""

    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {
            "strategy": {
                "temperature_end": 1.0,
                "sampling": "sample",
                "keep_none": True,
                "learning_rate": 3e-4,
            },
            "search": {"epochs": 240},
        },
        "recurrent": {  # of its row in the table of Penn Treebank; the paper's Adam at 20 is SGD in its code
            "strategy": {**_RECURRENT, "keep_none": True},
            "weights": RECURRENT_WEIGHTS,
            "search": {"epochs": 200, "batch_size": 128},
        },
        "recurrent_soft": {  # the public search of a recurrent cell: soft samples, all operations
            "strategy": {**_RECURRENT, "gradient": "soft", "keep_none": True},
            "weights": RECURRENT_WEIGHTS,
            "search": {"epochs": 200, "batch_size": 256},
        },
        "public": {
            "strategy": {"temperature_end": 0.1, "sampling": "batch", "learning_rate": 3e-4},
            "weights": {"weight_decay": 5e-4, "nesterov": True},
            "search": {"epochs": 250},
        },
    }

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        temperature_start: Annotated[float, Doc("of the Gumbel softmax, at the first step")] = 10.0,
        temperature_end: Annotated[float, Doc("where the last step comes to")] = 0.1,
        sampling: Annotated[
            Literal["batch", "sample"], Doc("one path for the whole batch, or one for every example")
        ] = "batch",
        anneal: Annotated[
            Literal["step", "epoch"], Doc("how often the temperature falls; epoch: to its end in the last one")
        ] = "step",
        gradient: Annotated[
            Gradient, Doc("through which options the logits learn; soft: nothing is hard, all options run")
        ] = "selected",
        **common: Any,
    ) -> None:
        super().__init__(space, generator, **common)
        check_temperatures(temperature_start, temperature_end)
        task = family_of(space).task
        require(
            {
                f"strategy.sampling must be 'batch' for {task.name}: a path per example would be another cell for "
                "each column of a text": task.are_independent or sampling == "batch",
                f"strategy.gradient must not be 'nb201_code' for {task.name}; use 'selected'": (
                    task.are_independent or gradient != "nb201_code"
                ),
                "strategy.gradient nb201_code samples once per batch; it needs sampling = 'batch'": (
                    gradient != "nb201_code" or sampling == "batch"
                ),
            }
        )
        self._start, self._end = temperature_start, temperature_end
        self._per_example, self._gradient, self._by_epoch = sampling == "sample", gradient, anneal == "epoch"

    def temperature(self, batch: SearchBatch) -> float:
        """Return the temperature at a step, linear over the search."""
        done = batch.epoch / max(1, batch.epochs - 1) if self._by_epoch else batch.progress
        return self._start - (self._start - self._end) * done

    def _sample(self, temperature: float, examples: int) -> Gates:
        return sample_gumbel_gates(
            self.policy,
            self.generator,
            temperature=temperature,
            gradient=self._gradient,
            images=examples if self._per_example else None,
        )

    def step(self, weights: SharedWeights, batch: SearchBatch) -> Metrics:
        """Update weights and logits once, each along a sampled path."""
        temperature = self.temperature(batch)
        trained = weights.fit(batch.train, self._sample(temperature, len(batch.train)))
        evaluated = weights.step_result(batch.valid, self._sample(temperature, len(batch.valid)))
        self.descend(weights.gradient(evaluated.loss, of=self.policy.values), batch)
        return metrics(trained, evaluated, temperature=temperature)
