"""The noise that mini-batches add to a draw, and the noise that is left to inject.

A gradient of B out of N images differs from that of all images, so a chain on mini-batches is hotter than its
posterior: at a rate r the difference adds r^2 P C P to the covariance of a draw, where C is the covariance of the
gradient. C shows in the spread of the batches within a draw. In coordinates where the posterior has unit covariance,
and along each eigenvector of C there, c is the variance that the batches add to a full Newton step. A draw

    z <- (1 - r) z + r (batch noise of variance c) + sqrt(r (2 - r) - r^2 c) xi

keeps the posterior exactly. Where r (2 - r) < r^2 c the batches alone are too noisy; r = 2 / (1 + c) is the largest
rate at which they are not.

This holds for batches that are drawn anew each time. A loader goes through all images before it repeats one: what one
draw sees too much of, the next ones see too little of. The chain remembers several draws, and most of the noise cancels
in it. `persisting_share` is the share of c that remains.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from archloom.core.state import StateDict

MEMORY = 1000.0  # degrees of freedom that the running covariance rests on at most: weights move on meanwhile


@runtime_checkable
class BatchedClosure(Protocol):
    """A closure whose mean gradient is that of several batches of equal size."""

    gradients: Sequence[Tensor]  # of the batches, at the last call; flat
    unseen: float  # the share of all images that are in none of the batches
    in_turn: bool  # whether successive calls go through all images before they see one again

    def __call__(self) -> Tensor:
        """Set the gradient of the mean loss over all batches, and return the loss."""

    def repeat(self, count: int) -> Tensor:
        """Return the flat gradient of the mean loss over the first batches, at the present parameters."""


@dataclass(frozen=True)
class Spectrum:
    """Variances of batch noise along the columns of `directions`, in units of the posterior's."""

    variances: Tensor
    directions: Tensor

    def limit_rates(self, rate: float) -> Tensor:
        """Return the rate along each direction, at most the largest at which batch noise is not too large."""
        return (2 / (1 + self.variances)).clamp(max=rate)

    def left_to_inject(self, rates: Tensor, *, share: Tensor | float = 1.0) -> Tensor:
        """Return the variance along each direction that keeps the posterior, beside this share of the batch noise."""
        return (rates * (2 - rates) - rates.square() * share * self.variances).clamp(min=0)


def persisting_share(rates: Tensor, *, batches: int, unseen: float) -> Tensor:
    """Return the share of the batches' noise that remains in a chain whose draws go through all images in turn.

    A chain z <- (1 - r) z + r e has sum_k (1 - r)^|k| cov(e_0, e_k) of its noise e, up to a factor that is the same
    for independent draws. Draws start anywhere in a pass over the images.
    """
    covariances = _covariances_in_turn(batches, batches / (1 - unseen)) if 0 < unseen < 1 else (1.0,)
    lags = torch.arange(1, len(covariances), dtype=rates.dtype, device=rates.device)
    later = torch.tensor(covariances[1:], dtype=rates.dtype, device=rates.device)
    return covariances[0] + 2 * ((1 - rates).unsqueeze(-1) ** lags) @ later


@functools.lru_cache(maxsize=16)
def _covariances_in_turn(batches: int, all_batches: float) -> tuple[float, ...]:
    """Return the covariance of the means of two draws by their distance, in units of one draw's own variance.

    Two batches of one pass have -1 / (all_batches - 1) of a batch's variance as their covariance, of two passes none.
    """
    numbers = torch.arange(batches, dtype=torch.float64)
    own = (1 - batches / all_batches) / (1 - 1 / all_batches) / batches
    found = []
    for lag in range(math.ceil(all_batches / batches) + 1):
        distances = (lag * batches + numbers.unsqueeze(0) - numbers.unsqueeze(1)).abs()
        same_pass = (1 - distances / all_batches).clamp(min=0)
        covariances = torch.where(distances == 0, torch.ones_like(distances), -same_pass / (all_batches - 1))
        found.append(float(covariances.mean()) / own)
    return tuple(found)


class BatchNoise:
    """The covariance of a draw's mean gradient around that of all images, as a running mean over draws."""

    def __init__(self, size: int, *, device: torch.device | None = None) -> None:
        self.covariance = torch.zeros(size, size, dtype=torch.float64, device=device)
        self._freedom = 0.0

    @property
    def is_known(self) -> bool:
        """Return whether a draw with several batches was seen."""
        return self._freedom > 0

    def observe(self, gradients: Sequence[Tensor], unseen: float) -> None:
        """Add the gradients of the batches of one draw; one alone shows no spread."""
        if len(gradients) < 2:
            return
        stacked = torch.stack([gradient.to(self.covariance) for gradient in gradients])
        centred, freedom = stacked - stacked.mean(dim=0), len(stacked) - 1
        self._freedom = min(self._freedom + freedom, MEMORY)
        own = unseen * centred.T @ centred / (freedom * len(stacked))
        self.covariance = self.covariance.lerp(own, freedom / self._freedom)

    def spectrum(self, root: Tensor, *, observations: float) -> Spectrum:
        """Return the variances in units of a posterior of covariance R R' / observations, for R = `root`."""
        whitened = observations * root.T @ self.covariance @ root
        values, vectors = torch.linalg.eigh(shrink_covariance(whitened, self._freedom))
        return Spectrum(values.clamp(min=0), vectors)

    def state_dict(self) -> StateDict:
        """Return what a checkpoint must hold."""
        return {"covariance": self.covariance, "freedom": self._freedom}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        self.covariance = state["covariance"].to(self.covariance)
        self._freedom = state["freedom"]


def shrink_covariance(sample: Tensor, freedom: float) -> Tensor:
    """Return a sample covariance shrunk towards a multiple of the identity (Chen et al., 2010: OAS).

    The eigenvalues of a sample covariance spread more than the true ones do.
    """
    size, trace, squares = len(sample), sample.trace(), sample.square().sum()
    spread = (freedom + 1 - 2 / size) * (squares - trace.square() / size)
    share = ((1 - 2 / size) * squares + trace.square()) / spread if bool(spread > 0) else torch.ones_like(trace)
    target = trace / size * torch.eye(size, dtype=sample.dtype, device=sample.device)
    return torch.lerp(sample, target, share.clamp(0, 1))
