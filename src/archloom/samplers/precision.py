"""The precision of a Gaussian prior as one more variable of the chain, under its conjugate Gamma prior."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def draw_precision(parameters: Iterable[Tensor], generator: torch.Generator, *, shape: float, rate: float) -> float:
    """Draw the precision given n parameters around 0, from Gamma(shape + n/2, rate + |theta|^2 / 2)."""
    tensors = [parameter.detach() for parameter in parameters]
    count = sum(tensor.numel() for tensor in tensors)
    squares = sum(float(tensor.double().square().sum()) for tensor in tensors)
    draw = torch._standard_gamma(torch.tensor(shape + count / 2, dtype=torch.float64), generator=generator)
    return float(draw) / (rate + squares / 2)
