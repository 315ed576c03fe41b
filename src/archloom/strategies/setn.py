"""SETN: train uniform paths, and learn on a template of them all which to sample and compare (Dong & Yang, 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import ClassVar, Literal

import torch

from archloom.policies.gumbel import drawn_scores
from archloom.spaces import Architecture, SearchSpace
from archloom.strategies.base import Differentiable, Evaluate, Metrics, Preset, SearchBatch, metrics
from archloom.strategies.candidates import Candidates
from archloom.supernet import SharedWeights, gradient_by, path_gates


class Setn(Differentiable):
    """A weight step on a path drawn uniformly, so that all learn alike; then a step of the logits on the template.

    The template is the mixture of all options by their probabilities. It only judges: no weight is ever trained in it.
    """

    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {  # of its row in the NAS-Bench-201 table, by the public code; what its own paper took is not known
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
        candidates: int = 100,  # architectures drawn by their probabilities and compared by shared weights at the end
        candidates_each_epoch: int = 10,  # and at the end of every epoch
        learning_rate: float = 3e-4,  # of Adam on the logits
        weight_decay: float = 1e-3,  # of Adam on the logits
        warmup: float = 0.0,  # share of the epochs that trains the weights alone
        none: Literal["free", "absent"] = "free",  # whether `none` takes part in the template
        keep_none: bool | None = None,  # may `none` win; left out: as the space has it
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
        path = path_gates(self.space, self.space.sample(self.python_random()))
        fitted = weights.fit(batch.train, path)
        judged = weights.evaluate(batch.valid, self.policy.mixture())
        self.descend(gradient_by(judged.loss, self.policy.values), batch)
        return metrics(fitted, judged)

    def best(self, evaluate: Evaluate, *, final: bool = True) -> Architecture:
        return self._candidates.best(self._draw, cache(evaluate), final=final)  # likely ones are drawn again and again

    def _draw(self) -> Architecture:
        return self.space.decode(drawn_scores(self.policy, self.generator), keep_none=self._keep_none)
