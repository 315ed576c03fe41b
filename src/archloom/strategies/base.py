"""What a strategy is: the inner step of a search, and nothing of the loop around it.

A strategy's keyword arguments are its settings: configuration files, `--set` and `archloom list strategies NAME` are
read off its signature; the comment behind a keyword is its help.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from annotated_doc import Doc
from torch import Tensor, nn

from archloom.core.errors import require
from archloom.core.json_object import JsonObject
from archloom.data.loader import Batch
from archloom.objectives.target import Target
from archloom.policies import Chain, Logits
from archloom.policies.posterior import Posterior
from archloom.spaces import NONE, Architecture, Scores, SearchSpace
from archloom.supernet import SharedWeights, StepResult, gradients_of

Metrics = Mapping[str, float]
Evaluate = Callable[[Architecture], float]
"""Accuracy of an architecture (0 to 1) on validation images, under the shared weights as they are now."""

Preset = Mapping[str, Mapping[str, Any]]
"""Settings by section of the configuration, such as {"strategy": {...}, "weights": {...}}."""


@dataclass(frozen=True)
class StrategyFindings:
    """What a strategy learned besides its architecture; kept with the result."""

    posterior: Posterior | None = None
    others: JsonObject = field(default_factory=dict)  # any further figures, by name


@runtime_checkable
class PosteriorStrategy(Protocol):
    """A strategy that keeps its draws from a posterior."""

    chain: Chain

    def summarize_chains(self, chains: Sequence[Chain], *, runs: Sequence[str] = ()) -> Posterior:
        """Return what parallel chains of this strategy say, each after its burn-in; `runs` names their folders."""


@dataclass(frozen=True)
class SearchBatch:
    """What one step of a search gets."""

    train: Batch
    valids: tuple[Batch, ...]  # as many as the strategy asks for at this step, usually one
    epoch: int
    epochs: int
    progress: float = 0.0  # of the whole search, from 0 to 1, step by step

    @property
    def valid(self) -> Batch:
        """The one validation batch of a strategy that takes one at every step."""
        (only,) = self.valids
        return only


@dataclass(frozen=True)
class Plan:
    """The sizes of a search, known before its first step."""

    train_images: int
    valid_images: int
    batch_size: int
    valid_batch_size: int
    steps: int  # of the whole search


@dataclass(frozen=True)
class Validation:
    """When a strategy wants validation batches: so many at once, every so many steps."""

    every: int = 1
    batches: int = 1

    def at(self, position: int) -> int:
        """How many at this step."""
        return self.batches if (position + 1) % self.every == 0 else 0

    def before(self, position: int) -> int:
        """How many at all the steps before."""
        return position // self.every * self.batches


class Stateful(ABC):  # noqa: B024 - its two families below have the abstract methods
    """Something that a checkpoint can hold completely: its generator, and the attributes it lists as `stateful`."""

    stateful: ClassVar[tuple[str, ...]] = ()  # attributes that `step` changes: with a state_dict, or plain values
    presets: ClassVar[Mapping[str, Preset]] = {}
    target: Target | None = None  # what the architecture found should cost, where that was asked for

    def __init__(self, space: SearchSpace, generator: torch.Generator) -> None:
        self.space = space
        self.generator = generator

    def set_target(self, target: Target) -> None:
        """Search for an architecture of this cost from now on."""
        self.target = target

    def findings(self) -> StrategyFindings:
        """Return what the search learned besides the architecture."""
        return StrategyFindings()

    def python_random(self) -> random.Random:
        """A generator for the space's torch-free sampling, itself drawn from this strategy's generator."""
        return random.Random(int(torch.randint(2**62, (), generator=self.generator)))

    def new_generator(self) -> torch.Generator:
        """Another stream of random numbers, for a part that keeps its own state."""
        return torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=self.generator)))

    def state_dict(self) -> dict[str, Any]:
        parts = {name: getattr(self, name) for name in self.stateful}
        states = {name: part.state_dict() if hasattr(part, "state_dict") else part for name, part in parts.items()}
        return {"generator": self.generator.get_state(), **states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.generator.set_state(state["generator"])
        for name in self.stateful:
            if hasattr(getattr(self, name), "load_state_dict"):
                getattr(self, name).load_state_dict(state[name])
            else:
                setattr(self, name, state[name])


class OneShot(Stateful):
    """A strategy that trains shared weights and learns from them which architecture to take."""

    validation: Validation = Validation()

    def begin(self, weights: SharedWeights, plan: Plan) -> None:
        """Called once before the first step, and before a saved state is loaded: the place to fit things to sizes."""

    @abstractmethod
    def step(self, weights: SharedWeights, batch: SearchBatch) -> Metrics:
        """One step of the search, as in the algorithm box of its paper."""

    @abstractmethod
    def best(self, evaluate: Evaluate, *, final: bool = True) -> Architecture:
        """The architecture the search stands for now; `final` tells the end of the search from a look in between."""

    def probabilities(self) -> Scores | None:
        """Probabilities of the options, for strategies that have any."""
        return None

    def finalists(self) -> list[Architecture]:
        """Architectures that may be the best one, to be decided between by training each for a short while."""
        return []

    def to(self, device: torch.device) -> None:
        for name in self.stateful:
            part = getattr(self, name)
            if isinstance(part, nn.Module):
                part.to(device)


class Differentiable(OneShot):
    """A one-shot strategy that descends on the logits of every option, and derives what their softmax favours."""

    stateful: ClassVar[tuple[str, ...]] = ("policy", "optimizer")

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        learning_rate: Annotated[float, Doc("of Adam on the logits")] = 3e-4,
        weight_decay: Annotated[float, Doc("of Adam on the logits")] = 1e-3,
        warmup: Annotated[float, Doc("share of the epochs that trains the weights alone")] = 0.0,
        none: Annotated[Literal["free", "absent"], Doc("whether `none` takes part in the search")] = "free",
        keep_none: Annotated[bool | None, Doc("may `none` win; left out: as the space has it")] = None,
        finalists: Annotated[
            int, Doc("what is derived and its neighbours, trained for a short while to decide; 1 is none")
        ] = 1,
    ) -> None:
        super().__init__(space, generator)
        require(
            {
                f"strategy.learning_rate must be above 0, got {learning_rate}": learning_rate > 0,
                f"strategy.weight_decay must be 0 or more, got {weight_decay}": weight_decay >= 0,
                f"strategy.warmup must lie in [0, 1), got {warmup}": 0 <= warmup < 1,
                f"strategy.finalists must be at least 1, got {finalists}": finalists >= 1,
            }
        )
        self._warmup, self._keep_none, self._finalists = warmup, keep_none, finalists
        self.policy = Logits(space, generator, without=(NONE,) if none == "absent" else ())
        self.optimizer: torch.optim.Optimizer = self.policy.adam(learning_rate=learning_rate, weight_decay=weight_decay)

    def descend(self, gradient: Tensor, batch: SearchBatch) -> None:
        """One optimizer step on the logits; none while the weights warm up and operations without any look best."""
        if self.is_warming_up(batch):
            return
        self.policy.values.grad = self.add_target_gradient(gradient)
        self.optimizer.step()

    def add_target_gradient(self, gradient: Tensor) -> Tensor:
        """A gradient by the logits with that of missing the target, by the cost to be expected of the softmax."""
        if self.target is None:
            return gradient
        probabilities = {name: row.softmax(dim=0) for name, row in self.policy.rows().items()}
        (penalty,) = gradients_of(self.target.penalty(probabilities), [self.policy.values])
        return gradient + penalty

    def is_warming_up(self, batch: SearchBatch) -> bool:
        return batch.epoch < self._warmup * batch.epochs

    def probabilities(self) -> Scores:
        return self.policy.probabilities()

    def best(self, evaluate: Evaluate, *, final: bool = True) -> Architecture:
        return self.space.decode(self.probabilities(), keep_none=self._keep_none)

    def finalists(self) -> list[Architecture]:
        if self._finalists == 1:
            return []
        return self.space.neighbours(self.probabilities(), self._finalists, keep_none=self._keep_none)


def metrics(train: StepResult, valid: StepResult | None = None, **others: float) -> Metrics:
    """The usual figures of a step under their usual names."""
    figures = {"train_loss": float(train.loss.detach()), "train_accuracy": float(train.score)}
    if valid is not None:
        figures |= {"valid_loss": float(valid.loss.detach()), "valid_accuracy": float(valid.score)}
    return {**figures, **others}


@dataclass(frozen=True)
class Trial:
    """One architecture to be scored by whatever means."""

    number: int
    architecture: Architecture


class BlackBox(Stateful):
    """A strategy that asks for architectures to be scored and is told the result. The engine numbers the trials.

    Where several processes work on one study, it is also told of trials that it never asked for.
    """

    @abstractmethod
    def ask(self, number: int) -> Trial:
        """The next architecture to score."""

    def should_continue(self, trial: Trial, epochs: int, score: float) -> bool:
        """Whether a trial that reached a score after so many epochs, not yet all, is worth the rest of them."""
        return True

    def tell(self, trial: Trial, score: float) -> None:
        """The score of a trial: higher is better."""

    def report_pruned(self, trial: Trial, score: float) -> None:
        """The last score of a trial that did not go on; as any other, unless a strategy knows better."""
        self.tell(trial, score)
