"""REINFORCE: a softmax policy over every decision learns from the scores of its samples (Williams, 1992)."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar

import torch
from annotated_doc import Doc
from torch import Tensor

from archloom.core.errors import require
from archloom.policies import Logits, sample_gumbel_noise
from archloom.spaces import NONE, Architecture, SearchSpace
from archloom.strategies.base import BlackBox, Preset, Trial


class Reinforce(BlackBox):
    """One Adam step for every score, along the gradient of the log-probability times the advantage.

    The advantage is the score minus a moving average of scores that starts unbiased and already includes this one, as
    in the public NAS-Bench-201 code. Decisions are sampled independently. Where a space joins them (two inputs for
    every node of a DARTS cell), its rule picks among the samples, and the gradient is that of the picked options.
    """

    stateful: ClassVar[tuple[str, ...]] = ("policy", "optimizer", "average", "weight")
    presets: ClassVar[dict[str, Preset]] = {"paper": {"strategy": {"learning_rate": 0.01, "baseline_momentum": 0.9}}}

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        learning_rate: Annotated[
            float, Doc("of Adam on the logits; scores are accuracies in percent, but Adam forgets scale")
        ] = 0.01,
        baseline_momentum: Annotated[
            float, Doc("of the moving average that scores are compared with; 0 learns nothing")
        ] = 0.9,
    ) -> None:
        super().__init__(space, generator)
        require(
            {
                f"strategy.learning_rate must be above 0, got {learning_rate}": learning_rate > 0,
                f"strategy.baseline_momentum must lie in (0, 1), got {baseline_momentum}": 0 < baseline_momentum < 1,
            }
        )
        self._momentum = baseline_momentum
        self.policy = Logits(space, generator, without=() if space.none_may_win else (NONE,))
        self._rate = learning_rate
        self.average, self.weight = 0.0, 0.0  # of the scores so far, and the sum of their weights in it

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """Create the optimizer when first needed, because torch imports a compiler for it."""
        return torch.optim.Adam([self.policy.values], lr=self._rate)

    def ask(self, number: int) -> Trial:
        """Return a trial sampled from the policy."""
        values = self.policy.values.detach()
        noisy = self.policy.split(values + sample_gumbel_noise(values.shape, self.generator).to(values))
        # the largest of each decision is a sample with its softmax probability
        return Trial(number, self.space.decode({name: row.tolist() for name, row in noisy.items()}))

    def tell(self, trial: Trial, score: float) -> None:
        """Update the policy by the score of a trial."""
        self.average = self._momentum * self.average + (1 - self._momentum) * score
        self.weight = self._momentum * self.weight + (1 - self._momentum)
        advantage = score - self.average / self.weight
        self.policy.values.grad = -advantage * self.log_probability_gradient(trial.architecture)
        self.optimizer.step()

    def log_probability_gradient(self, architecture: Architecture) -> Tensor:
        """Return the gradient by the logits: the choice minus the probabilities; zero for a skipped decision."""
        gradient: list[float] = []
        probabilities = self.policy.probabilities()
        for decision in self.space.decisions:
            chosen = [float(option == architecture[decision.name]) for option in decision.options]
            row = probabilities[decision.name]
            left_out = not any(one and probability for one, probability in zip(chosen, row, strict=True))
            gradient += [0.0 if left_out else one - p for one, p in zip(chosen, row, strict=True)]
        return self.policy.values.new_tensor(gradient)
