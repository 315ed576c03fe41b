"""The precision of a Gaussian prior as one more variable of the chain, under its conjugate Gamma prior."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def draw_precision(
    parameters: Iterable[Tensor],
    generator: torch.Generator,
    *,
    shape: float,
    rate: float,
    constraints: int = 0,  # directions of the parameters in which nothing moves: a prior says nothing of them
    temperature: float = 1.0,  # of the posterior that the parameters are drawn from
) -> float:
    """Draw the precision given parameters around 0 with n free directions.

    It is a draw from Gamma(shape + n/2, rate + |theta|^2 / (2 T)): at a temperature T the prior of the parameters has T
    times its variance, like everything else. Components in directions that cannot move must be 0.
    """
    tensors = [parameter.detach() for parameter in parameters]
    free = sum(tensor.numel() for tensor in tensors) - constraints
    squares = sum(float(tensor.double().square().sum()) for tensor in tensors)
    draw = torch._standard_gamma(torch.tensor(shape + free / 2, dtype=torch.float64), generator=generator)
    return float(draw) / (rate + squares / (2 * temperature))
