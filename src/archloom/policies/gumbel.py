"""Samples from softmax probabilities by Gumbel noise: hard ones whose weights still carry gradient, and soft ones."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from archloom.core.errors import require
from archloom.policies.logits import Logits
from archloom.spaces import Scores
from archloom.supernet import Gate, Gates

Gradient = Literal["selected", "all", "nb201_code"]


def check_temperatures(start: float, end: float) -> None:
    """The rules of a temperature that falls over a search."""
    require(
        {
            f"strategy.temperature_start must be above 0, got {start}": start > 0,
            f"strategy.temperature_end must lie in (0, {start}], got {end}": 0 < end <= start,
        }
    )


def sample_gumbel_gates(
    policy: Logits,
    generator: torch.Generator,
    *,
    temperature: float,
    gradient: Gradient = "selected",
    images: int | None = None,
) -> Gates:
    """One option per decision, drawn with its softmax probability whatever the temperature.

    `gradient` says what reaches the logits: `selected`, through the option that runs (only it is computed); `all`,
    through every option (all are computed); `nb201_code`, as in the public NAS-Bench-201 code, where the options that
    do not run enter as bare numbers of value zero. With `images`, every image draws for itself.
    """
    gates = {}
    for name, row in policy.rows().items():
        shape = row.shape if images is None else (images, len(row))
        soft = ((row + sample_gumbel_noise(shape, generator).to(row)) / temperature).softmax(dim=-1)
        index = soft.detach().argmax(dim=-1)
        hard = torch.zeros_like(soft).scatter(-1, index.unsqueeze(-1), 1.0)
        weights = hard - soft.detach() + soft  # the value of the hard sample, the gradient of the soft one
        gates[name] = _gate(index if images is not None else int(index), weights, gradient)
    return gates


def _gate(index: int | Tensor, weights: Tensor, gradient: Gradient) -> Gate:
    if gradient == "all":
        return Gate(weights=weights)
    if gradient == "selected":
        return Gate(index=index, weights=weights)
    assert isinstance(index, int)  # the public code draws once per batch
    return Gate(index=index, weights=weights, offset=weights.sum() - weights[index])  # zero, but carries gradient


def sample_concrete_gates(policy: Logits, generator: torch.Generator, *, temperature: float) -> Gates:
    """Every option, weighted by a draw from the concrete distribution: a hard sample in the limit of no temperature."""
    return {
        name: Gate(weights=((row + sample_gumbel_noise(row.shape, generator).to(row)) / temperature).softmax(dim=0))
        for name, row in policy.rows().items()
    }


def sample_scores(policy: Logits, generator: torch.Generator) -> Scores:
    """Log-probabilities with Gumbel noise: what a space decodes of them is an architecture drawn by probability.

    The best option of a decision is an exact draw. Where a space then keeps the best edges of a node, these are drawn
    without replacement, by the probability of the options that may win there.
    """
    with torch.no_grad():
        return {
            name: (row.log_softmax(dim=0) + sample_gumbel_noise(row.shape, generator).to(row)).tolist()
            for name, row in policy.rows().items()
        }


def sample_gumbel_noise(shape: tuple[int, ...] | torch.Size, generator: torch.Generator) -> Tensor:
    """Standard Gumbel numbers. An exponential of exactly zero would give infinity: such draws are made again."""
    noise = _draw(shape, generator)
    while not bool(torch.isfinite(noise).all()):
        noise = torch.where(torch.isfinite(noise), noise, _draw(shape, generator))
    return noise


def _draw(shape: tuple[int, ...] | torch.Size, generator: torch.Generator) -> Tensor:
    return -torch.empty(shape).exponential_(generator=generator).log()
