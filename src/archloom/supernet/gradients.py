"""The one call of `torch.autograd.grad` behind shared weights and strategies.

What has to happen to every gradient, such as averaging it over processes, belongs here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def find_gradients(
    value: Tensor, tensors: Sequence[Tensor], *, create_graph: bool = False, retain_graph: bool | None = None
) -> list[Tensor | None]:
    """Return the gradient of a value by each tensor, None where the value does not depend on it."""
    if not value.requires_grad:
        return [None] * len(tensors)
    return list(
        torch.autograd.grad(value, tensors, create_graph=create_graph, retain_graph=retain_graph, allow_unused=True)
    )


def gradients_of(
    value: Tensor, tensors: Sequence[Tensor], *, create_graph: bool = False, retain_graph: bool | None = None
) -> list[Tensor]:
    """Return the gradient of a value by each tensor, zero where the value does not depend on it."""
    found = find_gradients(value, tensors, create_graph=create_graph, retain_graph=retain_graph)
    return [torch.zeros_like(t) if gradient is None else gradient for t, gradient in zip(tensors, found, strict=True)]
