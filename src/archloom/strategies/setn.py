"""SETN: train uniform paths, and learn on a template of them all which to sample and compare (Dong & Yang, 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, ClassVar, Literal

import torch
from annotated_doc import Doc

from archloom.policies.gumbel import sample_scores
from archloom.spaces import Architecture, SearchSpace
from archloom.strategies.base import Evaluate, Metrics, Preset, SearchBatch, metrics
from archloom.strategies.candidates import Candidates
from archloom.strategies.differentiable import Differentiable
from archloom.supernet import SharedWeights, path_gates


class Setn(Differentiable):
    """A weight step on a uniformly sampled path, so that all train alike; then a step of the logits on the template.

    The template is the mixture of all options by their probabilities. It only evaluates: no weight trains in it.
    """

    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {  # of its row in the NAS-Bench-201 table, by the public code; those of its paper are unknown
            "strategy": {"learning_rate": 3e-4, "weight_decay": 1e-3, "candidates": 100},
            "weights": {"weight_decay": 5e-4, "nesterov": True, "clip": 0.0},
            "search": {"epochs": 250},
        },
    }

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        candidates: Annotated[
            int, Doc("architectures sampled by their probabilities and compared by shared weights at the end")
        ] = 100,
        candidates_each_epoch: Annotated[int, Doc("and at the end of every epoch")] = 10,
        learning_rate: Annotated[float | None, Doc("of Adam on the logits; left out: by the number of steps")] = None,
        weight_decay: Annotated[float, Doc("of Adam on the logits")] = 1e-3,
        warmup: Annotated[float, Doc("share of the search that trains the weights alone")] = 0.0,
        none: Annotated[Literal["free", "absent"], Doc("whether `none` takes part in the template")] = "free",
        keep_none: Annotated[bool | None, Doc("may `none` win; left out: as the space has it")] = None,
    ) -> None:
        super().__init__(
            space,
            generator,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            warmup=warmup,
            none=none,
            keep_none=keep_none,
        )
        self._candidates = Candidates(candidates, candidates_each_epoch)

    def step(self, weights: SharedWeights, batch: SearchBatch) -> Metrics:
        """Update the weights along a uniformly sampled path, then the logits."""
        path = path_gates(self.space, self.space.sample(self.python_random()))
        trained = weights.fit(batch.train, path)
        evaluated = weights.step_result(batch.valid, self.policy.mixture())
        self.descend(weights.gradient(evaluated.loss, of=self.policy.values), batch)
        return metrics(trained, evaluated)

    def best(self, evaluate: Evaluate, *, final: bool = True) -> Architecture:
        """Return the best of several sampled architectures under the shared weights."""
        return self._candidates.best(self._sample, cache(evaluate), final=final)  # probable ones are sampled repeatedly

    def _sample(self) -> Architecture:
        return self.space.decode(sample_scores(self.policy, self.generator), keep_none=self._keep_none)
