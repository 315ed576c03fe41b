"""Strategies that descend on logits: the part that DARTS, GDAS, SNAS and their successors share."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from annotated_doc import Doc
from torch import Tensor

from archloom.core.errors import require
from archloom.policies import Logits
from archloom.spaces import NONE, Architecture, Scores, SearchSpace
from archloom.strategies.base import Evaluate, OneShot, Plan, SearchBatch
from archloom.strategies.step_size import PUBLISHED_STEPS, TRAVEL, StepSize
from archloom.supernet import SharedWeights, gradients_of


class Differentiable(OneShot):
    """A one-shot strategy that descends on the logits of every option and derives the most probable options.

    A subclass implements `step`, which ends in `descend`.

    Args:
        space: what can be chosen.
        generator: the only source of random numbers.
        learning_rate: learning rate of Adam on the logits; by the planned number of steps if left out.
        weight_decay: weight decay of Adam on the logits.
        first_beta: the first beta of Adam on the logits.
        warmup: share of the search that trains the weights alone.
        none: whether `none` takes part in the search.
        keep_none: whether `none` may win; as the space has it if left out.

    Raises:
        SettingError: a setting is out of range.

    Examples:
        >>> import archloom, torch
        >>> class Plain(archloom.Differentiable):
        ...     def step(self, weights, batch):
        ...         fitted = weights.fit(batch.train, self.policy.mixture())
        ...         loss = weights.loss(batch.valid, self.policy.mixture())
        ...         self.descend(weights.gradient(loss, of=self.policy.values), batch)
        ...         return archloom.metrics(fitted)
        >>> strategy = Plain(archloom.Nb201(), torch.Generator().manual_seed(0), learning_rate=0.1)
        >>> [round(value, 1) for value in strategy.probabilities()["0->1"]]
        [0.2, 0.2, 0.2, 0.2, 0.2]
    """

    stateful: ClassVar[tuple[str, ...]] = ("policy", "optimizer")
    travel: ClassVar[float] = TRAVEL  # of a logit over a search whose learning rate is left out
    policy_type: ClassVar[type[Logits]] = Logits

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        learning_rate: Annotated[
            float | None, Doc("learning rate of Adam on the logits; left out: by the number of steps")
        ] = None,
        weight_decay: Annotated[float, Doc("weight decay of Adam on the logits")] = 1e-3,
        first_beta: Annotated[float, Doc("how much Adam on the logits remembers of earlier gradients")] = 0.5,
        warmup: Annotated[float, Doc("share of the search that trains the weights alone")] = 0.0,
        none: Annotated[Literal["free", "absent"], Doc("whether `none` takes part in the search")] = "free",
        keep_none: Annotated[bool | None, Doc("may `none` win; left out: as the space has it")] = None,
    ) -> None:
        super().__init__(space, generator)
        require(
            {
                f"strategy.learning_rate must be above 0, got {learning_rate}": (
                    learning_rate is None or learning_rate > 0
                ),
                f"strategy.weight_decay must be 0 or more, got {weight_decay}": weight_decay >= 0,
                f"strategy.first_beta must lie in [0, 1), got {first_beta}": 0 <= first_beta < 1,
                f"strategy.warmup must lie in [0, 1), got {warmup}": 0 <= warmup < 1,
            }
        )
        self._warmup, self._keep_none = warmup, keep_none
        self._without = (NONE,) if none == "absent" else ()
        self._step_size = StepSize(learning_rate, self.travel)
        rate = self._step_size.learning_rate(PUBLISHED_STEPS)  # until `begin` knows the number of steps
        self._adam = {"learning_rate": rate, "weight_decay": weight_decay, "first_beta": first_beta}
        self.begin_policy(space)

    def begin(self, weights: SharedWeights, plan: Plan) -> None:
        """Fit the learning rate of the logits to the number of steps after the warm-up, unless it is stated."""
        self._step_size.apply(self.optimizer, (1 - self._warmup) * plan.steps)

    def begin_policy(self, space: SearchSpace) -> None:
        """Make new logits for a space, and their optimizer."""
        self.policy = self.policy_type(space, self.generator, without=self._without)
        self.optimizer: torch.optim.Optimizer = self.policy.adam(**self._adam)

    def descend(self, gradient: Tensor, batch: SearchBatch) -> None:
        """Take an optimizer step on the logits, except in the warm-up, when operations without weights look best."""
        if self.is_warming_up(batch):
            return
        self.policy.values.grad = self.add_target_gradient(gradient)
        self.optimizer.step()

    def add_target_gradient(self, gradient: Tensor) -> Tensor:
        """Add the gradient of the penalty for missing the target, by the expected cost."""
        if self.target is None:
            return gradient
        (penalty,) = gradients_of(self.target.penalty(self.expected_choice()), [self.policy.values])
        return gradient + penalty

    def expected_choice(self) -> dict[str, Tensor]:
        """Return the probability of every option of the space, with gradient; a target weighs costs by it."""
        return self.policy.shares()

    def is_warming_up(self, batch: SearchBatch) -> bool:
        """Return whether only the weights train."""
        return is_within(self._warmup, batch)

    def probabilities(self) -> Scores:
        """Return the probability of every option."""
        return self.policy.probabilities()

    def scores(self) -> Scores:
        """Return the numbers that `best` decodes: the probabilities, where nothing else takes part."""
        return self.probabilities()

    def best(self, evaluate: Evaluate, *, final: bool = True) -> Architecture:
        """Return the architecture that the scores stand for."""
        return self.space.decode(self.scores(), keep_none=self._keep_none)


def is_within(share: float, batch: SearchBatch) -> bool:
    """Return whether a step is in the first share of a search.

    Steps after the planned ones, which meet a target, have the number of the last epoch and are in no first share.
    """
    return batch.progress < share and batch.epoch < share * batch.epochs
