"""The chain of the logits at the default settings of a search, on a model whose posterior is known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from archloom.spaces.nb201 import Nb201
from archloom.strategies.base import Plan
from archloom.strategies.gibbs import Gibbs

SPACE, LOGITS, IMAGES, BATCH = Nb201(nodes=2), 5, 5_000, 64
PLAN = Plan(train_images=IMAGES, valid_images=IMAGES, batch_size=BATCH, valid_batch_size=BATCH, steps=936)  # 12 epochs
BURN_IN, DRAWS = 200, 2_000


class Regression:
    """Stands for a supernet: the loss of an image is a square in the logits. Batches come as from a loader."""

    def __init__(self, values: Tensor, *, batches: int, in_turn: bool) -> None:
        generator = torch.Generator().manual_seed(0)
        scales = torch.logspace(0.3, -0.7, LOGITS, dtype=torch.float64)
        self.inputs = torch.randn(IMAGES, LOGITS, dtype=torch.float64, generator=generator) * scales
        self.inputs -= self.inputs.mean(dim=1, keepdim=True)  # a softmax does not see the mean of its logits
        self.targets = torch.randn(IMAGES, dtype=torch.float64, generator=generator)
        self.values, self.batches, self.in_turn = values, batches, in_turn
        self.unseen = 1 - batches * BATCH / IMAGES
        self.generator, self.waiting = generator, torch.empty(0, dtype=torch.long)
        self.gradients: list[Tensor] = []
        self.next_draw()

    def next_draw(self) -> None:
        """Take the next images; shuffle them again only after all were seen."""
        while len(self.waiting) < self.batches * BATCH:
            order = torch.randperm(IMAGES, generator=self.generator)[: IMAGES // BATCH * BATCH]
            self.waiting = torch.cat([self.waiting, order])
        self.images, self.waiting = self.waiting[: self.batches * BATCH], self.waiting[self.batches * BATCH :]

    def evaluate(self, count: int) -> Tensor:
        inputs = self.inputs[self.images].view(self.batches, BATCH, LOGITS)[:count]
        errors = inputs @ self.values.detach() - self.targets[self.images].view(self.batches, BATCH)[:count]
        return (inputs.transpose(1, 2) @ errors.unsqueeze(2)).squeeze(2) / BATCH

    def __call__(self) -> Tensor:
        self.gradients = list(self.evaluate(self.batches))
        self.values.grad = torch.stack(self.gradients).mean(dim=0)
        return torch.zeros(())

    def repeat(self, count: int) -> Tensor:
        return self.evaluate(count).mean(dim=0)


def variance_ratios(*, in_turn: bool) -> Tensor:
    """Return the variance of the chain over that of its posterior, along the posterior's own directions."""
    strategy = Gibbs(SPACE, torch.Generator().manual_seed(0))
    strategy.policy.double()
    strategy.begin(None, PLAN)  # type: ignore[arg-type]  # in first order the weights have no sampler
    sampler, values = strategy.optimizer, strategy.policy.values
    closure = Regression(values, batches=strategy.validation.batches, in_turn=in_turn)
    group = sampler.param_groups[0]
    hessian = closure.inputs.T @ closure.inputs / IMAGES + group["decay"] * torch.eye(LOGITS, dtype=torch.float64)
    mean = torch.linalg.solve(hessian, closure.inputs.T @ closure.targets / IMAGES)
    curvatures, directions = torch.linalg.eigh(hessian)
    free = directions.sum(dim=0).abs() < 1e-6
    draws = []
    for _ in range(BURN_IN + DRAWS):
        sampler.step(closure)  # type: ignore[arg-type]
        closure.next_draw()
        draws.append(values.detach().clone())
    along = (torch.stack(draws[BURN_IN:]) - mean) @ directions[:, free]
    return along.square().mean(dim=0) * curvatures[free] * group["observations"]


def test_the_default_chain_has_the_variance_of_its_posterior():
    """All is at its default: images of a draw, rate, learned curvature, clips. 12,000 draws came to 0.96 to 1.04."""
    ratios = variance_ratios(in_turn=True)
    assert len(ratios) == 4
    assert float(ratios.mean()) == pytest.approx(1.0, abs=0.08)
    assert float((ratios - 1).abs().max()) < 0.2  # two standard errors and a half of so few draws


def test_a_chain_that_takes_all_batch_noise_for_lasting_is_too_cold():
    """The control that must fail: batches that come in turn cancel most of their noise."""
    assert float(variance_ratios(in_turn=False).mean()) < 0.85
