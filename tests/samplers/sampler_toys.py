"""Posteriors that are known exactly, and closures for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.samplers import BfgsPosterior, DiagonalLbfgsPosterior, PosteriorSampler

OBSERVATIONS, DECAY = 400, 0.01
CHAINS = 20  # in one tensor, which is much faster than one after another
BURN_IN = 100  # of each chain: the slowest of them forgets 10 % in a step


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def zeros(*shape: int, dtype: torch.dtype = torch.float64) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*shape, dtype=dtype))


class Given:
    """A closure that sets given gradients, also for sampled labels, and counts its calls."""

    def __init__(
        self,
        parameters: list[nn.Parameter],
        gradient: Callable[[Tensor], Tensor | None],
        own: Any = 1.0,
        loss: float = 0.0,
    ) -> None:
        self._parameters, self._gradient, self._own, self._loss = parameters, gradient, own, loss
        self.calls = self.looks = 0

    def __call__(self) -> Tensor:
        self.calls += 1
        for parameter in self._parameters:
            parameter.grad = self._gradient(parameter.detach())
        return torch.tensor(self._loss)

    def backward_on_sampled_labels(self, generator: torch.Generator) -> int:
        self.looks += 1
        for parameter in self._parameters:
            parameter.grad = torch.ones_like(parameter) * self._own
        return 1


@dataclass(frozen=True)
class Conditional:
    """One block of a linear regression with unit noise, given the other: y = own x + other z + noise."""

    own: Tensor  # [observations, x]
    other: Tensor  # [observations, z]
    target: Tensor  # [observations]

    def gradient(self, x: Tensor, z: Tensor) -> Tensor:
        """Of the mean loss without the prior, for chains in rows."""
        return (x @ self.gram + z @ self.cross.T - self.projected) / OBSERVATIONS

    @cached_property
    def gram(self) -> Tensor:
        return self.own.T @ self.own

    @cached_property
    def cross(self) -> Tensor:
        return self.own.T @ self.other  # [x, z]

    @cached_property
    def projected(self) -> Tensor:
        return self.own.T @ self.target

    @cached_property
    def inverse(self) -> Tensor:
        """Of the Hessian of the mean loss with the prior."""
        return torch.linalg.inv(self.gram / OBSERVATIONS + DECAY * torch.eye(len(self.gram), dtype=torch.float64))


def regression(seed: int, *, orthogonal: bool = False) -> tuple[Conditional, Conditional]:
    """Four architecture parameters and six weights that explain the same 400 observations."""
    generator = seeded(seed)
    design = torch.randn(OBSERVATIONS, 10, dtype=torch.float64, generator=generator)
    design[:, 5] += 0.7 * design[:, 0]  # so that the blocks are not independent
    design[:, 1] += 0.5 * design[:, 2]
    if orthogonal:  # the weights, among each other
        sizes = torch.linspace(5, 30, 6, dtype=torch.float64)
        design[:, 4:] = torch.linalg.qr(design[:, 4:])[0] * sizes
    truth = torch.randn(10, dtype=torch.float64, generator=generator)
    target = design @ truth + torch.randn(OBSERVATIONS, dtype=torch.float64, generator=generator)
    a, w = design[:, :4], design[:, 4:]
    return Conditional(a, w, target), Conditional(w, a, target)


def exact_bfgs(x: nn.Parameter, conditional: Conditional, generator: torch.Generator, **settings: Any) -> BfgsPosterior:
    """A sampler that knows the curvature of its block."""
    settings = {"observations": OBSERVATIONS, "decay": DECAY, "step_clip": 0.0, "noise_limit": 0.0, **settings}
    sampler = BfgsPosterior([x], generator=generator, curvature="fixed", **settings)
    sampler.inverse.matrix = torch.block_diag(*[conditional.inverse] * CHAINS)
    return sampler


def exact_diagonal(
    x: nn.Parameter, conditional: Conditional, generator: torch.Generator, **settings: Any
) -> DiagonalLbfgsPosterior:
    """The same for a block whose curvature is a diagonal; the closure of `Gibbs` tells it."""
    settings = {"observations": OBSERVATIONS, "decay": DECAY, "noise_limit": 0.0, **settings}
    free = {"memory": 0, "damping": 0.0, "step_clip": 0.0, "noise_clip": 0.0, "smallest": 1e-9, "largest": 1e9}
    return DiagonalLbfgsPosterior([x], generator=generator, start_every=10**9, **free, **settings)


Make = Callable[..., PosteriorSampler]


def gibbs(
    conditionals: tuple[Conditional, Conditional],
    *,
    steps: int,
    make: tuple[Make, Make] = (exact_bfgs, exact_bfgs),
    sign: float = 1.0,
    seed: int = 0,
    **settings: Any,
) -> Tensor:
    """Return draws [steps, chains, 10] of both blocks, alternating."""
    blocks = [zeros(CHAINS, len(conditional.gram)) for conditional in conditionals]
    generator = seeded(seed)
    samplers, closures = [], []
    for number, conditional in enumerate(conditionals):
        samplers.append(make[number](blocks[number], conditional, generator, **settings))
        other = blocks[1 - number]
        own = (conditional.gram.diagonal() / OBSERVATIONS).sqrt()
        closures.append(
            Given([blocks[number]], lambda x, given=conditional, z=other: sign * given.gradient(x, z.detach()), own)
        )
    draws = []
    for _ in range(steps):
        for sampler, closure in zip(samplers, closures, strict=True):
            sampler.step(closure)
        draws.append(torch.cat([block.detach() for block in blocks], dim=1))
    return torch.stack(draws)


def joint_posterior(conditionals: tuple[Conditional, Conditional]) -> tuple[Tensor, Tensor]:
    """Mean and covariance where both blocks see the same data."""
    first = conditionals[0]
    design = torch.cat([first.own, first.other], dim=1)
    precision = design.T @ design + OBSERVATIONS * DECAY * torch.eye(10, dtype=torch.float64)
    return torch.linalg.solve(precision, design.T @ first.target), torch.linalg.inv(precision)


def stationary_law(conditionals: tuple[Conditional, Conditional], rate: float) -> tuple[Tensor, Tensor]:
    """Mean and covariance of the chain itself, whatever its blocks see: z' = F z + f + noise of covariance Q."""
    unit = torch.eye(10, dtype=torch.float64)
    factor, shift, spread = unit, torch.zeros(10, dtype=torch.float64), torch.zeros(10, 10, dtype=torch.float64)
    places = (slice(0, 4), slice(4, 10))
    for number, conditional in enumerate(conditionals):
        own, other, inverse = places[number], places[1 - number], conditional.inverse
        move, push, noise = unit.clone(), torch.zeros_like(shift), torch.zeros_like(spread)
        move[own, own] *= 1 - rate
        move[own, other] = -rate * inverse @ conditional.cross / OBSERVATIONS
        push[own] = rate * inverse @ conditional.projected / OBSERVATIONS
        noise[own, own] = rate * (2 - rate) * inverse / OBSERVATIONS
        factor, shift, spread = move @ factor, move @ shift + push, move @ spread @ move.T + noise
    mean = torch.linalg.solve(unit - factor, shift)
    lyapunov = torch.eye(100, dtype=torch.float64) - torch.kron(factor, factor)
    return mean, torch.linalg.solve(lyapunov, spread.flatten()).view(10, 10)


@dataclass(frozen=True)
class Agreement:
    """How far draws are from the distribution that they should have."""

    mean_error: float  # largest distance of a mean, in standard deviations
    variance_ratios: Tensor
    correlation_error: float  # largest


def compare(draws: Tensor, mean: Tensor, covariance: Tensor) -> Agreement:
    flat = draws[BURN_IN:].flatten(0, 1)
    deviations = covariance.diagonal().sqrt()
    seen = flat.T.cov()
    wanted = covariance / torch.outer(deviations, deviations)
    return Agreement(
        float(((flat.mean(dim=0) - mean) / deviations).abs().max()),
        seen.diagonal() / covariance.diagonal(),
        float((flat.T.corrcoef() - wanted).abs().max()),
    )


class SoftmaxRegression:
    """Mean cross-entropy of a linear classifier, with gradients and Hessians by formula."""

    def __init__(self, features: int, classes: int, examples: int, seed: int) -> None:
        generator = seeded(seed)
        scales = torch.logspace(0, -0.5, features, dtype=torch.float64)
        self.inputs = torch.randn(examples, features, dtype=torch.float64, generator=generator) * scales
        truth = torch.randn(features, classes, dtype=torch.float64, generator=generator)
        self.labels = torch.multinomial((self.inputs @ truth).softmax(1), 1, generator=generator).squeeze(1)
        self.shape = (features, classes)

    def gradient(self, weights: Tensor, index: Tensor) -> Tensor:
        inputs = self.inputs[index]
        error = (inputs @ weights).softmax(1) - F.one_hot(self.labels[index], self.shape[1])
        return inputs.T @ error / len(index)

    def hessian(self, weights: Tensor) -> Tensor:
        """Of the mean loss, for the flattened weights."""
        chances = (self.inputs @ weights).softmax(1)
        inner = torch.diag_embed(chances) - chances.unsqueeze(2) * chances.unsqueeze(1)
        size = self.shape[0] * self.shape[1]
        dense = torch.einsum("ni,nj,nab->iajb", self.inputs, self.inputs, inner)
        return dense.reshape(size, size) / len(self.inputs)

    def batches(self, size: int, seed: int) -> Iterator[Tensor]:
        generator = seeded(seed)
        while True:
            yield torch.randint(len(self.inputs), (size,), generator=generator)
