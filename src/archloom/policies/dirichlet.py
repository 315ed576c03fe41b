"""Mixtures sampled from Dirichlet distributions, one per decision, with learned concentrations (Chen et al., 2021)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Dirichlet, kl_divergence
from torch.nn import functional as F

from archloom.policies.logits import Logits
from archloom.spaces import Scores
from archloom.supernet import Gate, Gates

LEAST = 1e-4  # of a concentration: below it, samples are no longer numbers


class DirichletLogits(Logits):
    """One concentration per option: elu(value) + 1, which is 1 at the start, so all mixtures are equally likely.

    The mixture at the mean of the distribution stands for the search where nothing is sampled.
    """

    def concentrations(self, values: Tensor | None = None) -> dict[str, Tensor]:
        """Return the concentrations of every decision; 0 where an option is excluded."""
        rows = self.split(self.values if values is None else values)
        return {name: F.elu(row) + 1 for name, row in rows.items()}

    def shares(self) -> dict[str, Tensor]:
        """Return the mean weights of each decision, with gradient."""
        return {name: row / row.sum() for name, row in self.concentrations().items()}

    def mixture(self, values: Tensor | None = None) -> Gates:
        """Return gates at the mean of the distribution."""
        return {name: Gate(weights=row / row.sum()) for name, row in self.concentrations(values).items()}

    def probabilities(self) -> Scores:
        """Return the mean weight of every option."""
        return {name: row.tolist() for name, row in self.shares().items()}

    def sample(self, generator: torch.Generator) -> Gates:
        """Sample the weights of every decision; gradients pass through the sample to the concentrations."""
        seed = int(torch.randint(2**62, (), generator=generator))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return {name: Gate(weights=_sample_row(row)) for name, row in self.concentrations().items()}

    def divergence(self) -> Tensor:
        """Return the Kullback-Leibler divergence from the uniform distribution over mixtures, summed over decisions."""
        rows = [row[row > 0].clamp_min(LEAST) for row in self.concentrations().values()]
        return torch.stack([kl_divergence(Dirichlet(row), Dirichlet(torch.ones_like(row))) for row in rows]).sum()


def _sample_row(row: Tensor) -> Tensor:
    """Sample the weights of one decision; excluded options keep weight 0."""
    live = row.detach() > 0
    sampled = Dirichlet(row[live].clamp_min(LEAST).cpu()).rsample().to(row)
    return torch.zeros_like(row).index_add(0, live.nonzero().squeeze(1), sampled)
