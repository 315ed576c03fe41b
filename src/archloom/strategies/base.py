"""The contract of a strategy: the inner step of a search, without the loop around it.

A strategy's keyword arguments are its settings. Configuration files, `--set` and `archloom list strategies NAME` read
them from its signature; help is the `Doc` of a keyword.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import nn

from archloom.core.json_object import JsonObject
from archloom.core.state import StateDict
from archloom.data.loader import Batch
from archloom.objectives.target import Target
from archloom.policies.posterior import Posterior
from archloom.policies.probabilities import describe_indecision, log_probability, sample_architecture
from archloom.spaces import Architecture, Scores, SearchSpace
from archloom.supernet import (
    EveryOption,
    Gates,
    Resolve,
    SharedWeights,
    StepResult,
    path_gates,
)

Metrics = Mapping[str, float]
Evaluate = Callable[[Architecture], float]
"""Score of an architecture (0 to 1, higher is better) on validation examples, under the present shared weights."""

Preset = Mapping[str, Mapping[str, Any]]
"""Settings by section of the configuration, such as {"strategy": {...}, "weights": {...}}."""


RECURRENT_WEIGHTS: Mapping[str, Any] = {  # of published searches of a recurrent cell: SGD, and a step of at most 5
    "learning_rate": 20.0,
    "learning_rate_end": 20.0,
    "momentum": 0.0,
    "weight_decay": 5e-7,
    "clip": 0.25,
}


@dataclass(frozen=True)
class StrategyFindings:
    """What a strategy learned besides its architecture; kept with the result."""

    posterior: Posterior | None = None
    others: JsonObject = field(default_factory=dict)  # any further figures, by name


@dataclass(frozen=True)
class SearchBatch:
    """The input of one step of a search.

    Attributes:
        train: images that train the shared weights.
        valids: validation batches, as many as the strategy's `validation` says for this step.
        epoch: the epoch, from 0.
        epochs: epochs of the search.
        progress: the share of the search that is done.

    Examples:
        >>> import archloom, torch
        >>> batch = archloom.Batch(torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 0, 1]))
        >>> archloom.SearchBatch(batch, (batch,), epoch=0, epochs=2).valid is batch
        True
    """

    train: Batch
    valids: tuple[Batch, ...]  # as many as the strategy's `validation` says for this step, usually one
    epoch: int
    epochs: int
    progress: float = 0.0  # of the whole search, from 0 to 1, step by step

    @property
    def valid(self) -> Batch:
        """Return the one validation batch of a strategy that takes one at every step."""
        (only,) = self.valids
        return only


@dataclass(frozen=True)
class Plan:
    """The sizes of a search, known before its first step.

    Attributes:
        train_images: images that train the shared weights.
        valid_images: images for validation batches.
        batch_size: images of a training batch.
        valid_batch_size: images of a validation batch.
        steps: steps of the whole search.

    Examples:
        >>> import archloom
        >>> archloom.Plan(train_images=80, valid_images=80, batch_size=16, valid_batch_size=16, steps=10).steps
        10
    """

    train_images: int
    valid_images: int
    batch_size: int
    valid_batch_size: int
    steps: int  # of the whole search


@dataclass(frozen=True)
class Stage:
    """A part of a search that has a supernet of its own.

    Attributes:
        epochs: epochs of the stage.
        name: what the stage is, for progress and reports; '' where a search has one stage.
    """

    epochs: int
    name: str = ""


@dataclass(frozen=True)
class Validation:
    """When a strategy gets validation batches: a number at once, every few steps.

    Attributes:
        every: steps between validation batches.
        batches: batches at such a step.

    Examples:
        >>> import archloom
        >>> validation = archloom.Validation(every=3, batches=2)
        >>> [validation.at(position) for position in range(6)]
        [0, 0, 2, 0, 0, 2]
    """

    every: int = 1
    batches: int = 1

    def at(self, position: int) -> int:
        """Return the number of batches at this step."""
        return self.batches if (position + 1) % self.every == 0 else 0

    def before(self, position: int) -> int:
        """Return the number of batches at all steps before."""
        return position // self.every * self.batches


class Stateful(ABC):  # noqa: B024 - the two kinds of strategy below have the abstract methods
    """A strategy that a checkpoint holds completely: its generator, and the attributes in `stateful`."""

    stateful: ClassVar[tuple[str, ...]] = ()  # attributes that `step` changes: with a state_dict, or plain values
    presets: ClassVar[Mapping[str, Preset]] = {}
    target: Target | None = None  # for the cost of the final architecture
    former_names: ClassVar[Mapping[str, str]] = {}  # of stateful attributes, in checkpoints of the first edition

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
        """Return a generator for the space's torch-free sampling, seeded by this strategy's generator."""
        return random.Random(int(torch.randint(2**62, (), generator=self.generator)))

    def new_generator(self) -> torch.Generator:
        """Return a new generator, seeded by this strategy's, for a part that keeps its own state."""
        return torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=self.generator)))

    def state_dict(self) -> StateDict:
        """Return everything that a checkpoint must hold."""
        parts = {name: getattr(self, name) for name in self.stateful}
        states = {name: part.state_dict() if hasattr(part, "state_dict") else part for name, part in parts.items()}
        return {"generator": self.generator.get_state(), **states}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        self.generator.set_state(state["generator"])
        for name in self.stateful:
            value = state[name] if name in state else state[self.former_names[name]]
            if hasattr(getattr(self, name), "load_state_dict"):
                getattr(self, name).load_state_dict(value)
            else:
                setattr(self, name, value)


class OneShot(Stateful):
    """A strategy that trains shared weights and learns from them which architecture to choose.

    A subclass implements `step` and `best`, and names in `stateful` every attribute that `step` changes.

    Args:
        space: what can be chosen.
        generator: the only source of random numbers.

    Examples:
        >>> import archloom, torch
        >>> class Uniform(archloom.OneShot):
        ...     def step(self, weights, batch):
        ...         architecture = self.space.sample(self.python_random())
        ...         return archloom.metrics(weights.fit(batch.train, archloom.path_gates(self.space, architecture)))
        ...     def best(self, evaluate, *, final=True):
        ...         rng = self.python_random()
        ...         return max((self.space.sample(rng) for _ in range(10)), key=evaluate)
        >>> strategy = Uniform(archloom.Nb201(), torch.Generator().manual_seed(0))
        >>> len(strategy.best(lambda architecture: 0.5))
        6
    """

    validation: Validation = Validation()
    _keep_none: bool | None = None  # may `none` win; None: as the space has it

    # --- the supernet

    def resolve(self) -> Resolve:
        """Return how the supernet is built; `EveryOption()` builds all options on all channels."""
        return EveryOption()

    def stages(self, epochs: int) -> tuple[Stage, ...]:
        """Return the parts of a search of so many epochs; each has a supernet of its own. Most searches have one."""
        return (Stage(epochs),)

    def begin_stage(self, number: int) -> None:
        """Prepare for the supernet of stage `number`, from 1: its space, and new architecture parameters."""

    def restore_stage(self, state: StateDict) -> None:
        """Prepare for the supernet of a saved strategy, before `load_state_dict`; weights of its shape come next."""

    @property
    def supernet_space(self) -> SearchSpace:
        """Return the space of the present supernet: the searched one, unless a stage has another."""
        return self.space

    @property
    def path_space(self) -> SearchSpace:
        """Return the space of the architectures that are paths through the present supernet."""
        return self.supernet_space

    def path_gates(self, architecture: Architecture) -> Gates:
        """Return the gates of an architecture as one path through the present supernet."""
        return path_gates(self.supernet_space, architecture)

    # --- the search

    def begin(self, weights: SharedWeights, plan: Plan) -> None:
        """Prepare for the sizes of a stage; called before its first step and before a saved state is loaded."""

    @abstractmethod
    def step(self, weights: SharedWeights, batch: SearchBatch) -> Metrics:
        """Take one step of the search, as in the algorithm box of its paper."""

    @abstractmethod
    def best(self, evaluate: Evaluate, *, final: bool = True) -> Architecture:
        """Return the architecture that the search would choose now; `final` is False before the end of the search."""

    def remark(self) -> str:
        """Return a sentence for the verdict, on what a reader of this result must know; usually none."""
        return ""

    def probabilities(self) -> Scores | None:
        """Return the probabilities of the options, or None for strategies without any."""
        return None

    def log_probability(self, architecture: Architecture) -> float:
        """Return the log-probability of an architecture, decision by decision; 0 for strategies without any."""
        scores = self.probabilities()
        return 0.0 if scores is None else log_probability(self.space, scores, architecture, keep_none=self._keep_none)

    def sample(self, rng: random.Random) -> Architecture:
        """Sample an architecture by the probabilities, each decision independently; uniformly if there are none."""
        scores = self.probabilities()
        if scores is None:
            return self.space.sample(rng)
        return sample_architecture(self.space, scores, rng, keep_none=self._keep_none)

    def undecided(self) -> str | None:
        """Return a sentence if the search has not decided; None if it has, or has no probabilities."""
        scores = self.probabilities()
        return None if scores is None else describe_indecision(scores)

    def to(self, device: torch.device) -> None:
        """Move the parameters of the strategy to a device."""
        for name in self.stateful:
            part = getattr(self, name)
            if isinstance(part, nn.Module):
                part.to(device)


def metrics(train: StepResult, valid: StepResult | None = None, **others: float) -> Metrics:
    """Return the usual figures of a step under their usual names.

    Args:
        train: the result of the training batch.
        valid: the result of the validation batch, if there is one.
        others: further figures by name.

    Returns:
        The figures by name, as the history of a search has them.

    Examples:
        >>> import archloom, torch
        >>> archloom.metrics(archloom.StepResult(torch.tensor(0.5), torch.tensor(0.75)), entropy=1.5)
        {'train_loss': 0.5, 'train_accuracy': 0.75, 'entropy': 1.5}
    """
    parts = {"train": train} if valid is None else {"train": train, "valid": valid}
    figures: dict[str, float] = {}
    for part, found in parts.items():
        figures[f"{part}_loss"] = float(found.loss.detach())
        figures[f"{part}_{found.metric.name}"] = found.metric.to_figure(float(found.score))
    return {**figures, **others}


@dataclass(frozen=True)
class Trial:
    """One architecture to score.

    Attributes:
        number: the number of the trial, from 0.
        architecture: the architecture to score.

    Examples:
        >>> import archloom
        >>> archloom.Trial(0, next(archloom.Nb201().enumerate())).number
        0
    """

    number: int
    architecture: Architecture


class BlackBox(Stateful):
    """An ask/tell strategy: it proposes architectures, and the loop reports their scores and numbers the trials.

    If several processes share a study, trials that other processes proposed are reported to it, too.

    A subclass implements `ask`, and usually `tell`.

    Args:
        space: what can be chosen.
        generator: the only source of random numbers.

    Examples:
        >>> import archloom, torch
        >>> class Uniform(archloom.BlackBox):
        ...     def ask(self, number):
        ...         return archloom.Trial(number, self.space.sample(self.python_random()))
        >>> Uniform(archloom.Nb201(), torch.Generator().manual_seed(0)).ask(0).number
        0
    """

    @abstractmethod
    def ask(self, number: int) -> Trial:
        """Return the next architecture to score."""

    def should_continue(self, trial: Trial, epochs: int, score: float) -> bool:
        """Return whether to train a trial further that has this score after some of its epochs."""
        return True

    def tell(self, trial: Trial, score: float) -> None:
        """Report the score of a trial; higher is better."""

    def report_pruned(self, trial: Trial, score: float) -> None:
        """Report the last score of a trial that was stopped early; by default like any other score."""
        self.tell(trial, score)
