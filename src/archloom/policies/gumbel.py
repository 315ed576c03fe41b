"""Sample from softmax probabilities by Gumbel noise: hard samples that pass gradient, and soft ones."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from archloom.core.errors import require
from archloom.policies.logits import Logits
from archloom.spaces import Scores
from archloom.supernet import Gate, Gates

Gradient = Literal["selected", "all", "nb201_code", "soft"]


def check_temperatures(start: float, end: float) -> None:
    """Raise SettingError unless the temperatures of a search are positive and fall."""
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
    """Sample one option per decision, with its softmax probability at any temperature.

    `gradient` says what reaches the logits: `selected`, through the option that runs (only it is computed); `all`,
    through every option (all are computed); `nb201_code`, as in the public NAS-Bench-201 code, where the options that
    do not run enter as bare numbers of value zero; `soft`, where nothing is hard: all options run, with the weights of
    the sample. With `images`, every image gets its own sample.
    """
    gates = {}
    for name, row in policy.rows().items():
        shape = row.shape if images is None else (images, len(row))
        soft = ((row + sample_gumbel_noise(shape, generator).to(row)) / temperature).softmax(dim=-1)
        if gradient == "soft":
            gates[name] = Gate(weights=soft)
            continue
        index = soft.detach().argmax(dim=-1)
        hard = torch.zeros_like(soft).scatter(-1, index.unsqueeze(-1), 1.0)
        weights = hard - soft.detach() + soft  # the value of the hard sample, the gradient of the soft one
        gates[name] = _make_gate(index if images is not None else int(index), weights, gradient)
    return gates


def _make_gate(index: int | Tensor, weights: Tensor, gradient: Gradient) -> Gate:
    if gradient == "all":
        return Gate(weights=weights)
    if gradient == "selected":
        return Gate(index=index, weights=weights)
    assert isinstance(index, int)  # the public code samples once per batch
    return Gate(index=index, weights=weights, offset=weights.sum() - weights[index])  # zero, but passes gradient


def sample_concrete_gates(policy: Logits, generator: torch.Generator, *, temperature: float) -> Gates:
    """Sample weights of every option from the concrete distribution; at temperature 0 they are a hard sample."""
    return {
        name: Gate(weights=((row + sample_gumbel_noise(row.shape, generator).to(row)) / temperature).softmax(dim=0))
        for name, row in policy.rows().items()
    }


def sample_scores(policy: Logits, generator: torch.Generator) -> Scores:
    """Sample log-probabilities with Gumbel noise: a space decodes them to an architecture sampled by probability.

    The best option of a decision is an exact sample. Where a space then keeps the best edges of a node, these are
    sampled without replacement, by the probability of the options that may win there.
    """
    with torch.no_grad():
        return {
            name: (row.log_softmax(dim=0) + sample_gumbel_noise(row.shape, generator).to(row)).tolist()
            for name, row in policy.rows().items()
        }


def sample_gumbel_noise(shape: tuple[int, ...] | torch.Size, generator: torch.Generator) -> Tensor:
    """Sample standard Gumbel numbers. An exponential of exactly zero would give infinity and is sampled again."""
    noise = _sample_once(shape, generator)
    while not bool(torch.isfinite(noise).all()):
        noise = torch.where(torch.isfinite(noise), noise, _sample_once(shape, generator))
    return noise


def _sample_once(shape: tuple[int, ...] | torch.Size, generator: torch.Generator) -> Tensor:
    return -torch.empty(shape).exponential_(generator=generator).log()
