"""One step of a retraining, by the loop that `archloom retrain` runs, on random images of CIFAR's shape."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn

from archloom.core.settings import Settings
from archloom.data.loader import Batch, Batches
from archloom.families import build_network
from archloom.latency.step_timing import CLASSES, IMAGE_SHAPE, STEPS, Step
from archloom.retrainings.loop import RetrainLoop, TrainingSettings
from archloom.retrainings.optimization import OptimizerSettings
from archloom.searches.short_training import seeded
from archloom.spaces import SPACES, SearchSpace
from archloom.spaces.published import PUBLISHED
from archloom.supernet import Only


@dataclass(frozen=True, kw_only=True)
class RetrainWorkload:
    """One step of training a published architecture from scratch."""

    architecture: str  # its name
    channels: int
    batch: int
    space_settings: Settings = field(default_factory=dict)
    network_settings: Settings = field(default_factory=dict)

    def build_space(self) -> SearchSpace:
        entry = SPACES.find(PUBLISHED[self.architecture][0])
        return entry.load()(**{**entry.settings, **self.space_settings})

    def build_network(self) -> nn.Module:
        space = self.build_space()
        resolve = Only(space.parse(PUBLISHED[self.architecture][1]))
        settings = {"channels": self.channels, **self.network_settings}
        return build_network(space, resolve, classes=CLASSES, colours=IMAGE_SHAPE[0], **settings)

    def prepare_step(self, *, channels_last: bool, mixed_precision: bool = False, seed: int = 0) -> Step:
        """Build the loop and return the function that advances it by one step."""
        layout = torch.channels_last if channels_last else torch.contiguous_format
        with seeded(seed):
            network = self.build_network().to(memory_format=layout)
            images = torch.randn(self.batch, *IMAGE_SHAPE).contiguous(memory_format=layout)
            labels = torch.randint(CLASSES, (self.batch,))
        loop = RetrainLoop(
            network,
            train=OneBatch(Batch(images, labels)),
            valid=None,
            test=None,
            classes=CLASSES,
            optimizer=OptimizerSettings(),
            training=TrainingSettings(epochs=1, batch_size=self.batch, mixed_precision=mixed_precision),
            seed_of=lambda step: seed + step,
        )
        return loop.advance


class OneBatch(Batches):
    """The same batch at every step of an epoch that does not end while it is timed."""

    steps = STEPS

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    @property
    def batch_size(self) -> int:
        return len(self._batch)

    @property
    def examples(self) -> int:
        return self.steps * self.batch_size

    def batch(self, epoch: int, step: int) -> Batch:
        return self._batch
