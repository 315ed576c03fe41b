"""Gates under a sparse prior: a variance per group of gates, learned by the evidence (Zhou et al., 2019: BayesNAS).

Every gate a is a plain number. Gates of one group g (an operation on an edge, in all cells of a kind) share a prior
N(0, gamma_g). The evidence, by Laplace's method, is maximised by turns: gates descend on the mean loss plus a penalty,
then the variances follow in closed form. With N observations and h the curvature of N times the mean loss:

    alpha = h / (1 + h gamma)        omega_g = sqrt(sum of alpha over the group)        gamma_g = |a_g| / omega_g
    penalty on the mean loss = sum over groups of omega_g |a_g| / N

At a fixed point gamma_g = max(0, |a*|^2 / M - 1 / h), a* the optimum without a prior, M gates of equal curvature: a
group survives if it is worth more than the noise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

from archloom.spaces import SearchSpace
from archloom.supernet import Gate, Gates

PASSING = 0.001  # share of useless groups that pass the noise rule
NO_INFORMATION = 0.05854983152431917  # 1 / (2 pi e): the variance of a normal distribution of entropy 0


class SparseGates(nn.Module):
    """One gate per option of every decision of a supernet, with the variances of groups of gates.

    Args:
        space: the space of the supernet.
        shared: the decision, of the space that is searched, that each decision of the supernet belongs to. Gates of one
            decision and option form a group.
        without: options without a gate.
    """

    def __init__(self, space: SearchSpace, shared: Mapping[str, str], *, without: Collection[str] = ()) -> None:
        super().__init__()
        self._names = [decision.name for decision in space.decisions]
        self._sizes = [len(decision.options) for decision in space.decisions]
        keys = [(shared[decision.name], option) for decision in space.decisions for option in decision.options]
        self.groups = list(dict.fromkeys(key for key in keys if key[1] not in without))
        places = {key: place for place, key in enumerate(self.groups)}
        group_of = torch.tensor([places.get(key, len(places)) for key in keys])  # the last: no gate
        self.register_buffer("_group_of", group_of, persistent=False)
        self._group_of: Tensor
        self.values = nn.Parameter(torch.ones(len(keys)))
        for name, start in (("variance", 1.0), ("penalty", 1.0)):  # gamma and omega of each group
            self.register_buffer(name, torch.full((len(self.groups),), start))
        for name in ("curvature", "squares"):  # of each gate: h, and the squared gradients that it is averaged from
            self.register_buffer(name, torch.zeros(len(keys)))
        self.register_buffer("draws", torch.zeros(()))
        self.variance: Tensor
        self.penalty: Tensor
        self.curvature: Tensor
        self.squares: Tensor
        self.draws: Tensor

    def gates(self) -> Gates:
        """Return every option with its gate as its weight."""
        rows = torch.split(self.values, self._sizes)
        return {name: Gate(weights=row) for name, row in zip(self._names, rows, strict=True)}

    # --- sums over groups

    def sum_by_group(self, values: Tensor) -> Tensor:
        """Return the sums of numbers per gate over each group."""
        total = values.new_zeros(len(self.groups) + 1)
        return total.index_add(0, self._group_of, values)[:-1]

    def _by_gate(self, values: Tensor) -> Tensor:
        """Return numbers per group for every gate; 0 for options without one."""
        return torch.cat([values, values.new_zeros(1)])[self._group_of]

    @property
    def sizes(self) -> Tensor:
        """Return the number of gates of every group."""
        return self.sum_by_group(torch.ones_like(self.values.detach()))

    def norms(self) -> Tensor:
        """Return the length of the gates of every group."""
        return self.sum_by_group(self.values.detach().square()).sqrt()

    # --- updates

    @torch.no_grad()
    def descend(self, gradient: Tensor, *, rate: float, observations: float) -> None:
        """Take a gradient step on the mean loss and the proximal step of the penalty: groups reach zero exactly."""
        self.values.sub_(rate * gradient)
        norms = self.norms()
        shrunk = (norms - rate * self.penalty / observations).clamp_min(0)
        factor = torch.where(norms > 0, shrunk / norms.clamp_min(torch.finfo(norms.dtype).tiny), 0.0)
        self.values.mul_(self._by_gate(factor))

    @torch.no_grad()
    def observe(self, gradient: Tensor, images: int) -> None:
        """Add one draw of the curvature: the gradient of the mean loss on labels sampled from the model."""
        self.squares.add_(images * gradient.square())
        self.draws.add_(1)

    @torch.no_grad()
    def update(self, *, observations: float) -> None:
        """Update curvature, penalties and variances; the draws since the last update are used up."""
        if float(self.draws) == 0:
            return
        self.curvature.copy_(observations * self.squares / self.draws)
        alpha = self.curvature / (1 + self.curvature * self._by_gate(self.variance))  # at variance 0: the curvature
        self.penalty.copy_(self.sum_by_group(alpha).sqrt())
        self.variance.copy_(torch.where(self.penalty > 0, self.norms() / self.penalty.clamp_min(1e-30), 0.0))
        self.squares.zero_()
        self.draws.zero_()

    # --- pruning

    def signal(self) -> Tensor:
        """Return the variance of every group in units of its noise; it does not depend on the scale of an operation."""
        return self.variance * self.sum_by_group(self.curvature) / self.sizes

    def noise_limits(self) -> Tensor:
        """Return the signal that one useless group of a thousand exceeds, by its number of gates."""
        return torch.tensor([noise_limit(int(size)) for size in self.sizes.tolist()]).to(self.variance)

    def by_option(self, values: Tensor) -> dict[str, dict[str, float]]:
        """Return numbers per group by decision and option."""
        found: dict[str, dict[str, float]] = {}
        for (decision, option), value in zip(self.groups, values.tolist(), strict=True):
            found.setdefault(decision, {})[option] = value
        return found


def noise_limit(gates: int) -> float:
    """Return the signal that a useless group of so many gates exceeds with probability 0.001."""
    from scipy.special import chdtri  # slow to import

    return float(chdtri(gates, PASSING)) / gates - 1


def option_scores(
    space: SearchSpace, found: Mapping[str, Mapping[str, float]], *, none: float
) -> dict[str, Sequence[float]]:
    """Return scores for every option of a space; options without a group get `none`."""
    return {d.name: [found.get(d.name, {}).get(option, none) for option in d.options] for d in space.decisions}
