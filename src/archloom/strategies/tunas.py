"""TuNAS: single paths drawn by a policy that learns by REINFORCE, at a cost that is aimed at (Bender et al., 2020)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_doc import Doc
from torch import Tensor

from archloom.core.errors import require
from archloom.objectives.target import Target
from archloom.policies import Logits
from archloom.policies.multinomial import log_likelihood, mean_entropy, sample_architectures
from archloom.spaces import NONE, Architecture, Scores, SearchSpace
from archloom.strategies.base import Evaluate, Metrics, OneShot, Plan, Preset, SearchBatch, Validation, metrics
from archloom.supernet import Gate, Gates, SharedWeights, gradients_of, path_gates

RMSPROP: Mapping[str, Any] = {"alpha": 0.9, "momentum": 0.9, "eps": 1.0}
RMSPROP_IMAGES = 256  # that its learning rate is told for
RMSPROP_WARMUP = 0.025  # share of the steps over which its learning rate rises


@dataclass(frozen=True)
class Delayed(Validation):
    """So many validation batches at every step, from some step on."""

    first: int = 0

    def at(self, position: int) -> int:
        return self.batches if position >= self.first else 0

    def before(self, position: int) -> int:
        return max(0, position - self.first) * self.batches


class Tunas(OneShot):
    """A weight step on a path that the policy draws; then a step of the policy by how that path does on other images.

    Every decision has a multinomial of its own. The reward is the accuracy, less for missing the target if there is
    one. It is compared with a moving average that begins without bias and already holds it. At first the weights learn
    alone, and all of them: a decision may run all its options at once, or its largest width, less and less often.

    Until the policy learns, paths are not judged at all: rewards of weights that know nothing would teach it nothing.
    """

    stateful: ClassVar[tuple[str, ...]] = ("policy", "optimizer", "average", "weight")
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {  # by the public code, for its batches of 4096
            "strategy": {
                "learning_rate": 4.8e-3,
                "valid_batches": 4,
                "optimizer": "rmsprop",
                "cost_paths": 0,
                "derive": "most_probable",
            },
            "weights": {"weight_decay": 4e-5, "label_smoothing": 0.1},
            "search": {"epochs": 90, "batch_size": 4096},
        },
    }

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        learning_rate: Annotated[float, Doc("of Adam on the logits, when they begin to learn")] = 0.02,
        growth: Annotated[float, Doc("factor by which it rises, exponentially, until the end")] = 10.0,
        delay: Annotated[float, Doc("share of the steps that trains the weights alone")] = 0.25,
        operation_warmup: Annotated[
            float, Doc("share of the steps in which a decision may run all its options at once")
        ] = 0.25,
        width_warmup: Annotated[
            float, Doc("share of the steps in which a width may be the largest whatever was drawn")
        ] = 0.25,
        baseline_momentum: Annotated[
            float, Doc("of the moving average that rewards are compared with; 0 learns nothing")
        ] = 0.95,
        order: Annotated[
            Literal["weights_first", "policy_first"], Doc("which of the two steps sees the other")
        ] = "weights_first",
        valid_batches: Annotated[int, Doc("validation batches that judge a path")] = 4,
        cost_paths: Annotated[
            int, Doc("further paths of which only the cost is asked; 0 leaves that to the path that is judged")
        ] = 32,
        optimizer: Annotated[
            Literal["sgd", "rmsprop"], Doc("of the weights: that of section weights, or the paper's")
        ] = "sgd",
        rmsprop_learning_rate: Annotated[
            float, Doc("of rmsprop, for each 256 images of a batch; on a cosine to 0")
        ] = 0.165,
        rmsprop_weight_decay: Annotated[float, Doc("of rmsprop")] = 4e-5,
        derive: Annotated[
            Literal["at_target", "most_probable"], Doc("at_target: one change may bring it there")
        ] = "at_target",
        keep_none: Annotated[bool | None, Doc("may `none` win; left out: as the space has it")] = None,
    ) -> None:
        super().__init__(space, generator)
        warmups = {"operation_warmup": operation_warmup, "width_warmup": width_warmup}
        require(
            {
                f"strategy.learning_rate must be above 0, got {learning_rate}": learning_rate > 0,
                f"strategy.growth must be above 0, got {growth}": growth > 0,
                f"strategy.delay must lie in [0, 1), got {delay}": 0 <= delay < 1,
                f"strategy.baseline_momentum must lie in (0, 1), got {baseline_momentum}": 0 < baseline_momentum < 1,
                f"strategy.valid_batches must be at least 1, got {valid_batches}": valid_batches >= 1,
                f"strategy.cost_paths must be 0, or 2 or more, got {cost_paths}": cost_paths == 0 or cost_paths >= 2,
                f"strategy.rmsprop_learning_rate must be above 0, got {rmsprop_learning_rate}": (
                    rmsprop_learning_rate > 0
                ),
                f"strategy.rmsprop_weight_decay must be 0 or more, got {rmsprop_weight_decay}": (
                    rmsprop_weight_decay >= 0
                ),
            }
            | {
                # a policy that learns from warmed-up paths would learn about others than it drew
                f"strategy.{name} must lie in [0, {delay:g}], up to strategy.delay, got {value}": 0 <= value <= delay
                for name, value in warmups.items()
            }
        )
        self._rate, self._growth, self._delay = learning_rate, growth, delay
        self._operation_warmup, self._width_warmup = operation_warmup, width_warmup
        self._momentum, self._policy_first = baseline_momentum, order == "policy_first"
        self._valid_batches, self._cost_paths, self._keep_none = valid_batches, cost_paths, keep_none
        self._rmsprop, self._at_target = optimizer == "rmsprop", derive == "at_target"
        self._rmsprop_rate, self._rmsprop_decay = rmsprop_learning_rate, rmsprop_weight_decay
        self.policy = Logits(space, generator, spread=0.0, without=() if space.none_may_win else (NONE,))
        self.optimizer = torch.optim.Adam([self.policy.values], lr=learning_rate, betas=(0.0, 0.999))
        self.average, self.weight = 0.0, 0.0  # of the rewards so far, and how much of it they fill

    def begin(self, weights: SharedWeights, plan: Plan) -> None:
        self.validation = Delayed(batches=self._valid_batches, first=math.ceil(self._delay * plan.steps))
        if self._rmsprop:
            rate = self._rmsprop_rate * plan.batch_size / RMSPROP_IMAGES
            own = torch.optim.RMSprop(weights.parameters.values(), lr=rate, weight_decay=self._rmsprop_decay, **RMSPROP)
            weights.optimize_with(own)

    def set_target(self, target: Target) -> None:
        """A policy that has decided draws nothing else any more, and would learn nothing of another target."""
        if self.target is not None:
            with torch.no_grad():
                self.policy.values.copy_(torch.cat([_reopened(row) for row in self.policy.rows().values()]))
        super().set_target(target)

    # --- the search

    def step(self, weights: SharedWeights, batch: SearchBatch) -> Metrics:
        (path,) = sample_architectures(self.space, self.policy, self.generator)
        gates = self.sample_warmup_gates(path, batch.progress)
        if self._rmsprop:
            _rise(weights, batch.progress)
        if self._policy_first:
            learnt = self._judged(weights, path, batch)
            return {**metrics(weights.fit(batch.train, gates)), **learnt}
        fitted = weights.fit(batch.train, gates)
        return {**metrics(fitted), **self._judged(weights, path, batch)}

    def sample_warmup_gates(self, path: Architecture, progress: float) -> Gates:
        """The path; but each decision by itself may be replaced, the more probably the earlier it is."""
        gates = dict(path_gates(self.space, path))
        for decision in self.space.decisions:
            wide = decision.name in self.space.widths
            share = self._width_warmup if wide else self._operation_warmup
            chance = max(0.0, 1 - progress / share) if share else 0.0
            if chance and float(torch.rand((), generator=self.generator)) < chance:
                count, options = len(decision.options), decision.options
                largest = max(range(count), key=lambda index: float(options[index])) if wide else None
                even = None if wide else torch.full((count,), 1 / count, device=self.policy.values.device)
                gates[decision.name] = Gate(index=largest, weights=even)
        return gates

    def _judged(self, weights: SharedWeights, path: Architecture, batch: SearchBatch) -> dict[str, float]:
        """One step of the policy by what the path is worth."""
        if not batch.valids:
            return {}
        gates = path_gates(self.space, path)
        images = sum(map(len, batch.valids))
        accuracy = sum(float(weights.score(valid, gates)) * len(valid) for valid in batch.valids) / images
        reward = self.learn(path, accuracy, rate=self.learning_rate(batch.progress))
        return {"valid_accuracy": accuracy, "reward": reward, "entropy": mean_entropy(self.policy), **self._costs(path)}

    def learn(self, path: Architecture, accuracy: float, *, rate: float) -> float:
        """One step of the policy by the accuracy of a path and by what it costs; the reward of both."""
        reward = accuracy if self.target is None else self.target.compute_reward(accuracy, path)
        others = self._sample_cost_paths()
        self.reinforce(path, accuracy if others else reward, rate=rate, others=others)
        return reward

    def learning_rate(self, progress: float) -> float:
        return self._rate * math.pow(self._growth, max(0.0, (progress - self._delay) / (1 - self._delay)))

    def reinforce(self, path: Architecture, reward: float, *, rate: float, others: Sequence[Architecture] = ()) -> None:
        """Make a path more probable by as much as it is better than what went before.

        Where a reward is the quality and, by itself, what the cost is worth, the latter can be had without a network:
        `others` are paths that tell it, each compared with the rest of them, and the reward of the path is its quality.
        The step is the same on average, and follows the target with much less noise.
        """
        self.average = self._momentum * self.average + (1 - self._momentum) * reward
        self.weight = self._momentum * self.weight + (1 - self._momentum)
        advantages = [reward - self.average / self.weight, *self._cost_advantages(others)]
        likely = log_likelihood(self.space, self.policy, [path, *others], advantages)
        (gradient,) = gradients_of(likely, [self.policy.values])
        self.policy.values.grad = -gradient
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()

    def _sample_cost_paths(self) -> list[Architecture]:
        if self.target is None or not self.target.is_additive:
            return []
        return sample_architectures(self.space, self.policy, self.generator, self._cost_paths)

    def _cost_advantages(self, paths: Sequence[Architecture]) -> list[float]:
        """Of each, its share in the mean of what it is worth more than the others."""
        worths = [self.target.cost_term(path) for path in paths] if self.target is not None else []
        total, count = math.fsum(worths), len(worths)
        return [(worth - (total - worth) / (count - 1)) / count for worth in worths]

    def _costs(self, path: Architecture) -> dict[str, float]:
        """Of the path drawn, and of the most probable one: the policy has decided where they agree."""
        if self.target is None:
            return {}
        return {"cost": self.target.cost(path), "best_cost": self.target.cost(self._most_probable())}

    # --- what it came to

    def probabilities(self) -> Scores:
        return self.policy.probabilities()

    def best(self, evaluate: Evaluate, *, final: bool = True) -> Architecture:
        """The most probable architecture; where it misses the target, the most probable change that does not.

        A policy that has decided a little beside the target is not drawn to it any more. A reward that does not hold a
        target asks for no such thing.
        """
        likely = self._most_probable()
        if self.target is None or not (self.target.is_additive and self._at_target) or self.target.is_met_by(likely):
            return likely
        everything = sum(len(decision.options) for decision in self.space.decisions)
        near = self.space.neighbours(self.probabilities(), everything, keep_none=self._keep_none)
        return next((one for one in near if self.target.is_met_by(one)), likely)

    def _most_probable(self) -> Architecture:
        return self.space.decode(self.probabilities(), keep_none=self._keep_none)


def _reopened(logits: Tensor) -> Tensor:
    """Half of each probability dealt out evenly: the order stays, and everything can be drawn again."""
    live = torch.isfinite(logits)
    even = live.to(logits) / live.sum()
    mixed = (logits.softmax(dim=0) + even) / 2
    return torch.where(live, mixed.log(), torch.zeros_like(logits))


def _rise(weights: SharedWeights, progress: float) -> None:
    """Let a learning rate that was just set rise linearly over the first steps of a search."""
    if progress < RMSPROP_WARMUP:
        weights.set_learning_rate(weights.learning_rate * (progress / RMSPROP_WARMUP))
