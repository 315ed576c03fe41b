"""Sample every decision independently, and the likelihood whose derivative REINFORCE needs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from archloom.policies.gumbel import sample_gumbel_noise
from archloom.policies.logits import Logits
from archloom.spaces import Architecture, SearchSpace


def sample_architectures(
    space: SearchSpace, policy: Logits, generator: torch.Generator, count: int = 1
) -> list[Architecture]:
    """Sample architectures, each option with its softmax probability; a space that joins decisions applies its rule."""
    values = policy.values.detach()
    noisy = policy.split(values + sample_gumbel_noise((count, *values.shape), generator).to(values))
    rows = {name: row.tolist() for name, row in noisy.items()}
    return [space.decode({name: row[number] for name, row in rows.items()}) for number in range(count)]


def log_likelihood(
    space: SearchSpace, policy: Logits, architectures: Sequence[Architecture], weights: Sequence[float]
) -> Tensor:
    """Return the weighted sum of the log-probabilities of architectures, with its graph.

    Only active choices count, and only options that can be sampled: a space's rule excludes others.
    """
    active = [space.active(one) for one in architectures]
    terms = []
    for name, row in policy.rows().items():
        options, live = space.decision(name).options, torch.isfinite(row.detach()).tolist()
        counts = [0.0] * len(options)
        for one, counted, weight in zip(architectures, active, weights, strict=True):
            if name in counted and one[name] in options and live[options.index(one[name])]:
                counts[options.index(one[name])] += weight
        logs = row.log_softmax(dim=0).masked_fill(~torch.isfinite(row.detach()), 0.0)
        terms.append(logs @ logs.new_tensor(counts))
    return torch.stack(terms).sum()


def mean_entropy(policy: Logits) -> float:
    """Return the mean entropy of a decision in nats: 0 if all are certain."""
    entropies = [torch.special.entr(row.detach().softmax(dim=0)).sum() for row in policy.rows().values()]
    return float(torch.stack(entropies).mean())
