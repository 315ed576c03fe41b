"""TuNAS: a REINFORCE policy over single paths, with a target for their cost (Bender et al., 2020)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_doc import Doc
from torch import Tensor

from archloom.core.errors import require
from archloom.objectives.target import Target
from archloom.policies import Logits
from archloom.policies.multinomial import log_likelihood, mean_entropy, sample_architectures
from archloom.spaces import NONE, Architecture, Scores, SearchSpace
from archloom.strategies.base import Evaluate, Metrics, OneShot, Plan, Preset, SearchBatch, Validation, metrics
from archloom.strategies.step_size import PUBLISHED_STEPS, StepSize
from archloom.supernet import Gate, Gates, SharedWeights, gradients_of, path_gates

POLICY_TRAVEL = 0.02 * 0.75 * PUBLISHED_STEPS  # sum of the first learning rates; 0.02 after 50 epochs of CIFAR-10
LARGEST_RATE = 0.05  # of the policy at first: beyond, few samples decide
RMSPROP_IMAGES = 256  # of a batch, for the learning rate in its setting
RMSPROP_WARMUP = 0.025  # share of the steps over which its learning rate rises


@dataclass(frozen=True)
class DelayedValidation(Validation):
    """The same number of validation batches at every step, from some step on."""

    first: int = 0

    def at(self, position: int) -> int:
        """Return the number of validation batches at a step."""
        return self.batches if position >= self.first else 0

    def before(self, position: int) -> int:
        """Return the number of validation batches before a step."""
        return max(0, position - self.first) * self.batches


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """How the policy learns."""

    learning_rate: Annotated[
        float | None, Doc("of Adam on the logits, when they begin to learn; left out: by the number of steps")
    ] = None
    growth: Annotated[float, Doc("factor by which it rises, exponentially, until the end")] = 10.0
    delay: Annotated[float, Doc("share of the steps that trains the weights alone")] = 0.25
    baseline_momentum: Annotated[
        float, Doc("of the moving average that rewards are compared with; 0 learns nothing")
    ] = 0.95
    valid_batches: Annotated[int, Doc("validation batches that score a path")] = 4
    cost_paths: Annotated[
        int, Doc("further paths for the cost term of the reward alone; 0: only the scored path has a cost term")
    ] = 32

    def __post_init__(self) -> None:
        momentum = self.baseline_momentum
        require(
            {
                f"strategy.policy.learning_rate must be above 0, got {self.learning_rate}": (
                    self.learning_rate is None or self.learning_rate > 0
                ),
                f"strategy.policy.growth must be above 0, got {self.growth}": self.growth > 0,
                f"strategy.policy.delay must lie in [0, 1), got {self.delay}": 0 <= self.delay < 1,
                f"strategy.policy.baseline_momentum must lie in (0, 1), got {momentum}": 0 < momentum < 1,
                f"strategy.policy.valid_batches must be at least 1, got {self.valid_batches}": self.valid_batches >= 1,
                f"strategy.policy.cost_paths must be 0, or 2 or more, got {self.cost_paths}": (
                    self.cost_paths == 0 or self.cost_paths >= 2
                ),
            }
        )


@dataclass(frozen=True, kw_only=True)
class SupernetSettings:
    """How the weights train."""

    optimizer: Annotated[Literal["sgd", "rmsprop"], Doc("of the weights: that of section weights, or the paper's")] = (
        "sgd"
    )
    rmsprop_learning_rate: Annotated[float, Doc("of rmsprop, for each 256 images of a batch; on a cosine to 0")] = 0.165
    rmsprop_weight_decay: Annotated[float, Doc("of rmsprop")] = 4e-5
    operation_warmup: Annotated[
        float, Doc("share of the steps in which a decision may run all its options at once")
    ] = 0.25
    width_warmup: Annotated[float, Doc("share of the steps in which the largest width may replace the sampled one")] = (
        0.25
    )

    def __post_init__(self) -> None:
        rate, decay = self.rmsprop_learning_rate, self.rmsprop_weight_decay
        require(
            {
                f"strategy.weights.rmsprop_learning_rate must be above 0, got {rate}": rate > 0,
                f"strategy.weights.rmsprop_weight_decay must be 0 or more, got {decay}": decay >= 0,
            }
        )


class Tunas(OneShot):
    """A weight step on a path sampled by the policy, then a policy step by the path's score on other images.

    Every decision has its own multinomial. The reward is the accuracy, with a penalty for missing the target if there
    is one. It is compared with a moving average that starts unbiased and already includes it. At first only the
    weights learn, and all of them: a decision may run all its options at once, or its largest width, less and less
    often. Paths are not scored until the policy learns: rewards of untrained weights would teach it nothing.
    """

    stateful: ClassVar[tuple[str, ...]] = ("policy", "optimizer", "average", "weight")
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {  # by the public code, for its batches of 4096
            "strategy": {
                "derive": "most_probable",
                "policy": {"learning_rate": 4.8e-3, "valid_batches": 4, "cost_paths": 0},
                "weights": {"optimizer": "rmsprop"},
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
        order: Annotated[
            Literal["weights_first", "policy_first"], Doc("which of the two steps comes first")
        ] = "weights_first",
        policy: Annotated[PolicySettings, Doc("how the policy learns")] = PolicySettings(),
        weights: Annotated[SupernetSettings, Doc("how the weights train")] = SupernetSettings(),
        derive: Annotated[
            Literal["at_target", "most_probable"], Doc("at_target: allow one change that meets the target")
        ] = "at_target",
        keep_none: Annotated[bool | None, Doc("may `none` win; left out: as the space has it")] = None,
    ) -> None:
        super().__init__(space, generator)
        most = policy.delay
        warmups = {"operation_warmup": weights.operation_warmup, "width_warmup": weights.width_warmup}
        require(
            {
                # during a warm-up other paths run than those sampled, and the policy must not learn from them
                f"strategy.weights.{name} must lie in [0, {most:g}], up to strategy.policy.delay, got {value}": (
                    0 <= value <= most
                )
                for name, value in warmups.items()
            }
        )
        self._settings, self._weights = policy, weights
        self._policy_first, self._at_target, self._keep_none = order == "policy_first", derive == "at_target", keep_none
        self.policy = Logits(space, generator, spread=0.0, without=() if space.none_may_win else (NONE,))
        self._step_size = StepSize(policy.learning_rate, POLICY_TRAVEL, largest=LARGEST_RATE)
        self._rate = self._step_size.learning_rate(PUBLISHED_STEPS)  # until `begin` knows the number of steps
        self.optimizer = torch.optim.Adam([self.policy.values], lr=self._rate, betas=(0.0, 0.999))
        self.average, self.weight = 0.0, 0.0  # of the rewards so far, and the sum of their weights in it

    def begin(self, weights: SharedWeights, plan: Plan) -> None:
        """Plan the delay and the learning rate of the policy, and prepare the optimizer of the weights."""
        first = math.ceil(self._settings.delay * plan.steps)
        self._rate = self._step_size.learning_rate(plan.steps - first)
        self.validation = DelayedValidation(batches=self._settings.valid_batches, first=first)
        if self._weights.optimizer == "rmsprop":
            rate, decay = self._weights.rmsprop_learning_rate, self._weights.rmsprop_weight_decay
            own = torch.optim.RMSprop(
                weights.parameters.values(),
                lr=rate * plan.batch_size / RMSPROP_IMAGES,
                weight_decay=decay,
                alpha=0.9,
                momentum=0.9,
                eps=1.0,  # torch adds it after the root, the public code before: its steps are up to 1.4 times larger
            )
            weights.optimize_with(own)

    def set_target(self, target: Target) -> None:
        """Search for another cost; a policy that is certain is reopened, or it would sample nothing new."""
        if self.target is not None:
            with torch.no_grad():
                self.policy.values.copy_(torch.cat([_mix_with_uniform(row) for row in self.policy.rows().values()]))
        super().set_target(target)

    # --- the search

    def step(self, weights: SharedWeights, batch: SearchBatch) -> Metrics:
        """Update the weights along a sampled path and, after its delay, the policy."""
        (path,) = sample_architectures(self.space, self.policy, self.generator)
        gates = self.sample_warmup_gates(path, batch.progress)
        if self._weights.optimizer == "rmsprop":
            _warm_up_learning_rate(weights, batch.progress)
        if self._policy_first:
            learned = self._update_policy(weights, path, batch)
            return {**metrics(weights.fit(batch.train, gates)), **learned}
        trained = weights.fit(batch.train, gates)
        return {**metrics(trained), **self._update_policy(weights, path, batch)}

    def sample_warmup_gates(self, path: Architecture, progress: float) -> Gates:
        """Return the gates of the path; a decision may run all its options instead, less and less often."""
        gates = dict(path_gates(self.space, path))
        for decision in self.space.decisions:
            wide = decision.name in self.space.widths
            share = self._weights.width_warmup if wide else self._weights.operation_warmup
            probability = max(0.0, 1 - progress / share) if share else 0.0
            if probability and float(torch.rand((), generator=self.generator)) < probability:
                count, options = len(decision.options), decision.options
                largest = max(range(count), key=lambda index: float(options[index])) if wide else None
                even = None if wide else torch.full((count,), 1 / count, device=self.policy.values.device)
                gates[decision.name] = Gate(index=largest, weights=even)
        return gates

    def _update_policy(self, weights: SharedWeights, path: Architecture, batch: SearchBatch) -> dict[str, float]:
        """Take a policy step by the reward of the path, and return its figures."""
        if not batch.valids:
            return {}
        gates = path_gates(self.space, path)
        accuracy = weights.metric.mean((float(weights.score(valid, gates)), len(valid)) for valid in batch.valids)
        reward = self.learn(path, accuracy, rate=self.learning_rate(batch.progress))
        valid = {f"valid_{weights.metric.name}": weights.metric.to_figure(accuracy)}
        return {**valid, "reward": reward, "entropy": mean_entropy(self.policy), **self._costs(path)}

    def learn(self, path: Architecture, accuracy: float, *, rate: float) -> float:
        """Take a policy step by the accuracy and the cost of a path, and return the reward of both."""
        reward = accuracy if self.target is None else self.target.compute_reward(accuracy, path)
        others = self._sample_cost_paths()
        self.reinforce(path, accuracy if others else reward, rate=rate, others=others)
        return reward

    def learning_rate(self, progress: float) -> float:
        """Return the learning rate of the policy at a point of the search."""
        growth, delay = self._settings.growth, self._settings.delay
        return self._rate * math.pow(growth, max(0.0, (progress - delay) / (1 - delay)))

    def reinforce(self, path: Architecture, reward: float, *, rate: float, others: Sequence[Architecture] = ()) -> None:
        """Make a path more probable by as much as its reward exceeds the moving average.

        If the reward is the sum of quality and a cost term, the cost term needs no network: `others` are paths for the
        cost term, each compared with the mean of the rest, and the reward of the path is its quality alone.
        The expected step is the same, with far less noise.
        """
        momentum = self._settings.baseline_momentum
        self.average = momentum * self.average + (1 - momentum) * reward
        self.weight = momentum * self.weight + (1 - momentum)
        kept = 1 - (1 - momentum) / self.weight  # of a reward: its own weight in the average is subtracted again
        cost_advantages = [kept * advantage for advantage in self._cost_advantages(others)]
        advantages = [reward - self.average / self.weight, *cost_advantages]
        likely = log_likelihood(self.space, self.policy, [path, *others], advantages)
        (gradient,) = gradients_of(likely, [self.policy.values])
        self.policy.values.grad = -gradient
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()

    def _sample_cost_paths(self) -> list[Architecture]:
        if self.target is None or not self.target.is_additive:
            return []
        return sample_architectures(self.space, self.policy, self.generator, self._settings.cost_paths)

    def _cost_advantages(self, paths: Sequence[Architecture]) -> list[float]:
        """Return by how much each path's cost term exceeds the mean of the others, divided by the number of paths."""
        terms = [self.target.cost_term(path) for path in paths] if self.target is not None else []
        total, count = math.fsum(terms), len(terms)
        return [(term - (total - term) / (count - 1)) / count for term in terms]

    def _costs(self, path: Architecture) -> dict[str, float]:
        """Return the costs of the sampled and of the most probable path: they agree once the policy is certain."""
        if self.target is None:
            return {}
        return {"cost": self.target.cost(path), "best_cost": self.target.cost(self._most_probable())}

    # --- the end

    def probabilities(self) -> Scores:
        """Return the probability of every option under the policy."""
        return self.policy.probabilities()

    def best(self, evaluate: Evaluate, *, final: bool = True) -> Architecture:
        """Return the most probable architecture; if it misses the target, the most probable change that meets it.

        A policy that becomes certain slightly off the target no longer moves towards it. Only the absolute reward
        holds a target.
        """
        likely = self._most_probable()
        if self.target is None or not (self.target.is_additive and self._at_target) or self.target.is_met_by(likely):
            return likely
        everything = sum(len(decision.options) for decision in self.space.decisions)
        near = self.space.neighbours(self.probabilities(), everything, keep_none=self._keep_none)
        return next((one for one in near if self.target.is_met_by(one)), likely)

    def _most_probable(self) -> Architecture:
        return self.space.decode(self.probabilities(), keep_none=self._keep_none)


def _mix_with_uniform(logits: Tensor) -> Tensor:
    """Return logits half way to the uniform distribution: the order stays, and every option can be sampled again."""
    live = torch.isfinite(logits)
    even = live.to(logits) / live.sum()
    mixed = (logits.softmax(dim=0) + even) / 2
    return torch.where(live, mixed.log(), torch.zeros_like(logits))


def _warm_up_learning_rate(weights: SharedWeights, progress: float) -> None:
    """Raise the learning rate linearly over the first steps of a search."""
    if progress < RMSPROP_WARMUP:
        weights.set_learning_rate(weights.learning_rate * (progress / RMSPROP_WARMUP))
