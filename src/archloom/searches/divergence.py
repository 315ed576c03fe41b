"""Divergence that stays finite: a loss far above that of guessing, weights beyond reason, probabilities that are NaN.

A loss of 9e17 is a number, and a search that ends with it would write an ordinary verdict. So every epoch is compared
with guessing: naming the classes at random has a loss of log(classes).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from archloom.core.errors import DivergedError

TIMES_GUESSING = 10.0  # an epoch of healthy training stays far below, its first included
LARGEST_WEIGHT = 1e6


def guessing_loss(classes: int) -> float:
    """Return the cross entropy of a network that finds every class equally probable."""
    return math.log(max(classes, 2))


def refuse_high_loss(loss: float | None, *, classes: int, epoch: int, remedy: str, outputs: str = "classes") -> None:
    """Raise a DivergedError if the mean loss of an epoch (from 0) is far above that of guessing."""
    guessing = guessing_loss(classes)
    if loss is not None and loss > TIMES_GUESSING * guessing + TIMES_GUESSING:
        raise DivergedError(
            f"the training diverged: the mean loss of epoch {epoch + 1} is {loss:.3g}, and guessing has "
            f"{guessing:.2f} ({classes} {outputs}); {remedy}"
        )


def refuse_huge_weights(weights: Iterable[Tensor], *, epoch: int, remedy: str) -> None:
    """Raise a DivergedError if a weight is no number or beyond reason."""
    tensors = [tensor.detach() for tensor in weights if tensor.is_floating_point() and tensor.numel()]
    if not tensors:
        return
    norms = torch._foreach_norm(tensors, math.inf)  # one call for hundreds of small tensors
    largest = max(map(float, norms), key=lambda value: math.inf if math.isnan(value) else value)
    if not largest <= LARGEST_WEIGHT:
        raise DivergedError(
            f"the training diverged: after epoch {epoch + 1} a weight is {largest:.3g}, beyond {LARGEST_WEIGHT:g}; "
            f"{remedy}"
        )


def refuse_bad_probabilities(probabilities: Mapping[str, Sequence[float]] | None, *, epoch: int, remedy: str) -> None:
    """Raise a DivergedError if the probabilities of a decision are no numbers: their entropy would be NaN."""
    for name, row in (probabilities or {}).items():
        if not all(math.isfinite(value) for value in row):
            raise DivergedError(
                f"the search diverged: after epoch {epoch + 1} the probabilities of decision '{name}' are "
                f"{', '.join(f'{value:.3g}' for value in row)}; {remedy}"
            )
