"""ENAS: an LSTM controller learns by REINFORCE which paths through shared weights are good (Pham et al., 2018)."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, ClassVar

import torch
from annotated_doc import Doc
from torch import Tensor

from archloom.core.errors import require
from archloom.data.loader import Batch
from archloom.policies.lstm import LstmPolicy, SampledPaths
from archloom.spaces import Architecture, Scores, SearchSpace
from archloom.strategies.base import Evaluate, Metrics, OneShot, Plan, Preset, SearchBatch, Validation, metrics
from archloom.strategies.candidates import Candidates
from archloom.strategies.differentiable import is_within
from archloom.strategies.step_size import StepSize
from archloom.supernet import SharedWeights, path_gates

CONTROLLER_SHARE = 1 / 4  # of the weight steps, as published: 50 of the controller to 195 of the weights
FEWEST_STEPS = 200  # of the controller in a search, if it has as many: fewer samples decide by chance
PUBLISHED_RATE = 1e-3  # of the controller, over 310 epochs of 50 steps
CONTROLLER_TRAVEL = 0.6  # of a parameter: after so much the controller has decided, and a larger rate decides by chance


@dataclass(frozen=True)
class SpreadValidation(Validation):
    """A number of validation batches per number of steps, spread as evenly as whole numbers allow."""

    def at(self, position: int) -> int:
        """Return the number of validation batches at a step."""
        return self.before(position + 1) - self.before(position)

    def before(self, position: int) -> int:
        """Return the number of validation batches before a step."""
        return position * self.batches // self.every


def plan_steps(every: int, steps: int) -> int:
    """Return the controller's steps in an epoch of `every` weight steps: a quarter, more in a short search."""
    return math.ceil(every * min(1.0, max(CONTROLLER_SHARE, FEWEST_STEPS / steps)))


class Enas(OneShot):
    """A weight step on a path sampled by the controller, and a number of controller steps per epoch.

    The paper trains weights for an epoch, then the controller. Here the controller's steps are spread evenly over the
    epoch: the same numbers of both, without a long phase that cannot be stopped. Each takes one validation batch and
    scores all its sampled paths on it.

    A path has an option of every decision. Where a space keeps only some edges (DARTS), paths run on all of them, as
    mixtures do, and candidates keep the edges with the strongest samples.
    """

    stateful: ClassVar[tuple[str, ...]] = ("policy", "optimizer", "baseline")
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {  # of its row in the NAS-Bench-201 table, by the public code, which also restarts the cosine
            "strategy": {
                "controller_steps": 50,
                "samples": 20,
                "learning_rate": 1e-3,
                "momentum": 0.0,
                "epsilon": 1e-3,
                "candidates": 100,
            },
            "weights": {"learning_rate": 0.05, "learning_rate_end": 5e-4, "weight_decay": 2.5e-4, "nesterov": True},
            "search": {"epochs": 310, "batch_size": 128},
        },
    }

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        controller_steps: Annotated[
            int | None,
            Doc("its learning steps in an epoch; left out: a quarter of the weight steps, at least 200 in all"),
        ] = None,
        samples: Annotated[int, Doc("paths sampled for each")] = 20,
        learning_rate: Annotated[
            float | None, Doc("of Adam on the controller; left out: by the number of its steps")
        ] = None,
        momentum: Annotated[float, Doc("of Adam: its first beta")] = 0.9,
        epsilon: Annotated[float, Doc("of Adam, added to the root of its second moment")] = 1e-8,
        entropy_weight: Annotated[float, Doc("of the controller's entropy beside the accuracy")] = 1e-4,
        baseline_decay: Annotated[
            float, Doc("of the moving average of rewards that each reward is compared with")
        ] = 0.99,
        layers: Annotated[int, Doc("of the LSTM")] = 2,
        units: Annotated[int, Doc("of each layer")] = 32,
        temperature: Annotated[float, Doc("that logits are divided by")] = 5.0,
        tanh_constant: Annotated[float, Doc("the largest logit")] = 2.5,
        warmup: Annotated[float, Doc("share of the search that trains the weights alone")] = 0.0,
        candidates: Annotated[
            int, Doc("architectures sampled by the controller and compared by shared weights at the end")
        ] = 100,
        candidates_each_epoch: Annotated[int, Doc("and at the end of every epoch")] = 10,
        keep_none: Annotated[bool | None, Doc("may `none` win; left out: as the space has it")] = None,
    ) -> None:
        super().__init__(space, generator)
        require(
            {
                f"strategy.controller_steps must be at least 1, got {controller_steps}": (
                    controller_steps is None or controller_steps >= 1
                ),
                f"strategy.samples must be at least 1, got {samples}": samples >= 1,
                f"strategy.learning_rate must be above 0, got {learning_rate}": (
                    learning_rate is None or learning_rate > 0
                ),
                f"strategy.momentum must lie in [0, 1), got {momentum}": 0 <= momentum < 1,
                f"strategy.epsilon must be above 0, got {epsilon}": epsilon > 0,
                f"strategy.entropy_weight must be 0 or more, got {entropy_weight}": entropy_weight >= 0,
                f"strategy.baseline_decay must lie in [0, 1), got {baseline_decay}": 0 <= baseline_decay < 1,
                f"strategy.warmup must lie in [0, 1), got {warmup}": 0 <= warmup < 1,
            }
        )
        self._controller_steps, self._samples, self._warmup = controller_steps, samples, warmup
        self._entropy_weight, self._baseline_decay, self._keep_none = entropy_weight, baseline_decay, keep_none
        self._candidates = Candidates(candidates, candidates_each_epoch)
        self.policy = LstmPolicy(
            space, generator, layers=layers, units=units, temperature=temperature, tanh_constant=tanh_constant
        )
        self._step_size = StepSize(
            learning_rate, CONTROLLER_TRAVEL, largest=10 * PUBLISHED_RATE, smallest=PUBLISHED_RATE
        )
        self.optimizer = torch.optim.Adam(
            self.policy.parameters(), lr=learning_rate or PUBLISHED_RATE, betas=(momentum, 0.999), eps=epsilon
        )
        self.baseline: float | None = None  # until there is a reward

    def begin(self, weights: SharedWeights, plan: Plan) -> None:
        """Plan how many validation batches each step takes, and fit the learning rate to the number of all of them."""
        every = plan.train_images // plan.batch_size
        self.validation = SpreadValidation(every=every, batches=self._controller_steps or plan_steps(every, plan.steps))
        self._step_size.apply(self.optimizer, (1 - self._warmup) * self.validation.before(plan.steps))

    def step(self, weights: SharedWeights, batch: SearchBatch) -> Metrics:
        """Update the weights along a sampled path, then the controller."""
        trained = weights.fit(batch.train, path_gates(self.space, self._sample().paths[0]))
        if not batch.valids or is_within(self._warmup, batch):
            return metrics(trained)
        learned = [self._learn(weights, valid) for valid in batch.valids]
        means = {name: sum(row[name] for row in learned) / len(learned) for name in learned[0]}
        return {**metrics(trained), **means}

    def _learn(self, weights: SharedWeights, valid: Batch) -> Metrics:
        """Take one step of the controller."""
        score = cache(lambda path: float(weights.score(valid, path_gates(self.space, path))))
        sampled = self.policy.sample(self.generator, self._samples)
        accuracies = torch.tensor([score(path) for path in sampled.paths])
        rewards = self.rewards(sampled, accuracies)
        self.optimizer.zero_grad()
        self.loss(sampled, rewards).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.update_baseline(rewards)
        entropy = float(sampled.entropies.detach().mean())
        figure = weights.metric.to_figure(float(accuracies.mean()))
        return {f"valid_{weights.metric.name}": figure, "baseline": self.baseline or 0.0, "entropy": entropy}

    def rewards(self, sampled: SampledPaths, accuracies: Tensor) -> Tensor:
        """Return accuracies minus weighted log-probabilities, whose mean is the entropy: REINFORCE raises both."""
        logs = sampled.log_probabilities.detach()
        return accuracies.to(logs) - self._entropy_weight * logs

    def loss(self, sampled: SampledPaths, rewards: Tensor) -> Tensor:
        """Return a loss whose expected gradient is minus that of the expected reward; the baseline removes noise only.

        The baseline must not depend on these rewards. At the first step it does, which makes that step smaller.
        """
        baseline = float(rewards.mean()) if self.baseline is None else self.baseline
        return -((rewards - baseline) * sampled.log_probabilities).mean()

    def update_baseline(self, rewards: Tensor) -> None:
        """Update the baseline by one reward after another."""
        average = float(rewards.mean()) if self.baseline is None else self.baseline
        for reward in rewards.tolist():
            average = self._baseline_decay * average + (1 - self._baseline_decay) * reward
        self.baseline = average

    def _sample(self) -> SampledPaths:
        with torch.no_grad():
            return self.policy.sample(self.generator)

    def probabilities(self) -> Scores:
        """Return the probability of every option under the controller."""
        return self.policy.probabilities()

    def sample(self, rng: random.Random) -> Architecture:
        """Sample an architecture from the controller, each decision given those before."""
        return self._sample_architecture(torch.Generator().manual_seed(rng.getrandbits(62)))

    def best(self, evaluate: Evaluate, *, final: bool = True) -> Architecture:
        """Return the best of several architectures sampled from the controller."""
        return self._candidates.best(  # probable ones are sampled repeatedly
            lambda: self._sample_architecture(self.generator), cache(evaluate), final=final
        )

    def _sample_architecture(self, generator: torch.Generator) -> Architecture:
        with torch.no_grad():
            scores = self.policy.sample(generator).scores[0]
        return self.space.decode(scores, keep_none=self._keep_none)
