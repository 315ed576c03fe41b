"""A small smooth supernet: exact second derivatives exist everywhere, so gradients can be compared to the digit."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.data.loader import Batch
from archloom.spaces import Decision, Nb201
from archloom.strategies.base import SearchBatch
from archloom.supernet import Choice, SharedWeights, WeightSettings

SPACE = Nb201(nodes=3, operations=("none", "wide", "narrow", "skip"))


class Smooth(nn.Module):
    def __init__(self, features: int = 3, classes: int = 3) -> None:
        super().__init__()
        self.choices = nn.ModuleList(self._choice(decision, features) for decision in SPACE.decisions)
        self.head = nn.Linear(features, classes)

    @staticmethod
    def _choice(decision: Decision, features: int) -> Choice:
        return Choice(
            decision,
            {
                "wide": nn.Sequential(nn.Linear(features, 5), nn.Softplus(), nn.Linear(5, features)),
                "narrow": nn.Sequential(nn.Linear(features, 2), nn.Tanh(), nn.Linear(2, features)),
                "skip": nn.Identity(),
            },
        )

    def forward(self, x: Tensor, gates) -> Tensor:
        states = [x]
        for inputs in ((0,), (0, 1)):
            edges = [self.choices[sum(range(len(inputs))) + source](states[source], gates) for source in inputs]
            states.append(sum((edge for edge in edges if edge is not None), torch.zeros_like(x)))
        return self.head(F.softplus(states[-1]))


def smooth_weights(**settings) -> SharedWeights:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Smooth().double()
    return SharedWeights(network, WeightSettings(**settings))


def batch(seed: int, count: int = 12) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 3, dtype=torch.float64, generator=generator)
    return Batch(images, torch.randint(3, (count,), generator=generator))


def search_batch(seed: int, *, epoch: int = 0, epochs: int = 3) -> SearchBatch:
    return SearchBatch(batch(2 * seed), (batch(2 * seed + 1),), epoch, epochs)
