"""Gradients of weights that are computed only where they are asked for.

A function with its own backward pass cannot see what is asked for: `needs_input_grad` says which inputs could have a
gradient. Where only the gates learn, gradients of weights would cost a third of all products. So weights are inputs of
a second function, whose result links it to the first one. Autograd calls its backward pass after that of the first, and
only on the way to a weight.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor


class LateGradients(Protocol):
    """Computes the gradients of two weights, after another backward pass."""

    def finish(self) -> tuple[Tensor, Tensor]:
        """Return the gradients of both."""


class LateWeights(torch.autograd.Function):
    """Takes such a computation and two weights; returns a zero, as the input that links the other function to it."""

    @staticmethod
    def forward(ctx: Any, runner: LateGradients, first: Tensor, second: Tensor) -> Tensor:
        ctx.runner = runner
        return first.new_zeros(())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        found = ctx.runner.finish()
        ctx.runner = None
        return None, *found


def refuse_second_derivative() -> None:
    """Raise a RuntimeError where a backward pass should have a graph of its own."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "fused parts have no second derivative; compute the loss within archloom.fast.use_kernels('plain')"
        )
