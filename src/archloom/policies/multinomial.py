"""A policy that draws every decision by itself, and the derivative that REINFORCE needs of it."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from archloom.policies.gumbel import gumbel_noise
from archloom.policies.logits import Logits
from archloom.spaces import Architecture, SearchSpace


def drawn(space: SearchSpace, policy: Logits, generator: torch.Generator) -> Architecture:
    """An architecture, each option with its softmax probability; where a space joins decisions, by its own rule."""
    values = policy.values.detach()
    noisy = policy.split(values + gumbel_noise(values.shape, generator).to(values))
    return space.decode({name: row.tolist() for name, row in noisy.items()})


def log_probability(space: SearchSpace, policy: Logits, architecture: Architecture, active: Collection[str]) -> Tensor:
    """Of the active choices of an architecture, with its graph; what cannot be drawn, a space's rule left out."""
    terms = []
    for name, row in policy.rows().items():
        options, option = space.decision(name).options, architecture[name]
        if name in active and option in options and bool(torch.isfinite(row[options.index(option)])):
            terms.append(row.log_softmax(dim=0)[options.index(option)])
    return torch.stack(terms).sum() if terms else policy.values.new_zeros(())


def mean_entropy(policy: Logits) -> float:
    """Of a decision, in nats: 0 where all are taken."""
    entropies = [torch.special.entr(row.detach().softmax(dim=0)).sum() for row in policy.rows().values()]
    return float(torch.stack(entropies).mean())
