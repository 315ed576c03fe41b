"""Measure the variance of the chain of gibbs at the default settings of a search, where the posterior is known.

    python benchmarks/gibbs_variance.py                        # the 30 logits of nb201
    python benchmarks/gibbs_variance.py --nodes 2 --draws 6000

A linear-Gaussian model stands for the supernet: the loss of an image is a square in the logits. Everything else is what
a search has by default: images of a draw, rate, learned curvature, clips, and batches that come as from a loader. It
prints the variance over that of the posterior, along each of the posterior's own axes.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from archloom.spaces.nb201 import Nb201
from archloom.strategies.base import Plan
from archloom.strategies.gibbs import Gibbs

BATCH = 64
LARGEST, SMALLEST = 0.3, -0.7  # powers of ten: the spread of the inputs


@dataclass(frozen=True)
class Setting:
    """A search whose chain is measured."""

    nodes: int = 4
    images: int = 5_000  # to train on, and as many to validate on
    steps: int = 936  # of the weights: 12 epochs
    burn_in: int = 400
    draws: int = 2_500
    in_turn: bool = True  # False takes all noise of the batches to last, which is wrong


class Regression:
    """A `BatchedClosure`: squares in the logits, over batches that come in turn."""

    def __init__(self, values: Tensor, setting: Setting, *, batches: int, seed: int) -> None:
        generator, count, images = torch.Generator().manual_seed(0), len(values), setting.images
        scales = torch.logspace(LARGEST, SMALLEST, count, dtype=torch.float64)
        spread = scales[torch.randperm(count, generator=generator)]
        inputs = torch.randn(images, count, dtype=torch.float64, generator=generator) * spread
        edges = inputs.view(images, -1, 5)
        self.inputs = (edges - edges.mean(dim=2, keepdim=True)).view(images, count)  # a softmax ignores the mean
        self.targets = torch.randn(images, dtype=torch.float64, generator=generator)
        self.values, self.batches, self.in_turn = values, batches, setting.in_turn
        self.unseen = max(0.0, 1 - batches * BATCH / images)
        self.generator, self.waiting = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long)
        self.gradients: list[Tensor] = []
        self.next_draw()

    def next_draw(self) -> None:
        """Take the next images; shuffle them again only after all were seen."""
        images, wanted = len(self.inputs), self.batches * BATCH
        while len(self.waiting) < wanted:
            order = torch.randperm(images, generator=self.generator)[: images // BATCH * BATCH]
            self.waiting = torch.cat([self.waiting, order])
        self.seen, self.waiting = self.waiting[:wanted], self.waiting[wanted:]

    def _evaluate(self, count: int) -> Tensor:
        inputs = self.inputs[self.seen].view(self.batches, BATCH, -1)[:count]
        errors = inputs @ self.values.detach() - self.targets[self.seen].view(self.batches, BATCH)[:count]
        return (inputs.transpose(1, 2) @ errors.unsqueeze(2)).squeeze(2) / BATCH

    def __call__(self) -> Tensor:
        """Set the gradient of the mean loss."""
        self.gradients = list(self._evaluate(self.batches))
        self.values.grad = torch.stack(self.gradients).mean(dim=0)
        return torch.zeros(())

    def repeat(self, count: int) -> Tensor:
        """Return the gradient over the first batches, at the present logits."""
        return self._evaluate(count).mean(dim=0)


def variance_ratios(setting: Setting, *, seed: int = 0) -> Tensor:
    """Return the variance of one chain over that of its posterior, along the posterior's own directions."""
    strategy = Gibbs(Nb201(nodes=setting.nodes), torch.Generator().manual_seed(seed))
    strategy.policy.double()
    count = setting.images
    plan = Plan(train_images=count, valid_images=count, batch_size=BATCH, valid_batch_size=BATCH, steps=setting.steps)
    strategy.begin(None, plan)  # type: ignore[arg-type]  # in first order the weights have no sampler
    sampler, values = strategy.optimizer, strategy.policy.values
    closure = Regression(values, setting, batches=strategy.validation.batches, seed=seed)
    group, gram = sampler.param_groups[0], closure.inputs.T @ closure.inputs / count
    hessian = gram + group["decay"] * torch.eye(len(values), dtype=torch.float64)
    mean = torch.linalg.solve(hessian, closure.inputs.T @ closure.targets / count)
    likelihood, directions = torch.linalg.eigh(gram)
    free = likelihood > 1e-9
    total = torch.zeros(int(free.sum()), dtype=torch.float64)
    for number in range(setting.burn_in + setting.draws):
        sampler.step(closure)  # type: ignore[arg-type]
        closure.next_draw()
        if number >= setting.burn_in:
            total += ((values.detach() - mean) @ directions[:, free]).square()
    precision = group["observations"] * (likelihood[free] + group["decay"])
    return total / setting.draws * precision


def main(arguments: Sequence[str] | None = None) -> None:
    """Run chains and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4, help="of the cell; 4 is nb201, 2 a single edge")
    parser.add_argument("--images", type=int, default=5_000)
    parser.add_argument("--steps", type=int, default=936, help="of the search, which plan the rate")
    parser.add_argument("--draws", type=int, default=2_500, help="of each chain")
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--anew", action="store_true", help="take all noise of the batches to last: too cold a chain")
    given = parser.parse_args(arguments)
    setting = Setting(
        nodes=given.nodes, images=given.images, steps=given.steps, draws=given.draws, in_turn=not given.anew
    )
    chains = torch.stack([variance_ratios(setting, seed=seed) for seed in range(given.chains)])
    ratios, error = chains.mean(dim=0), chains.std(dim=0).mean() / math.sqrt(len(chains))
    print(
        f"{len(ratios)} directions, {len(chains)} chains of {setting.draws:,} draws: variance over the posterior's "
        f"{float(ratios.mean()):.3f} on average, {float(ratios.min()):.3f} to {float(ratios.max()):.3f}, standard "
        f"error of one direction {float(error):.3f}"
    )


if __name__ == "__main__":
    main()
