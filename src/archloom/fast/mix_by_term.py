"""Mix by torch's batch normalisation, one term after the other: the fewest calls, for images of few pixels."""

from __future__ import annotations

import torch
from torch import Tensor

from archloom.fast.kernel_arguments import EPSILON, Slots, Term, Terms

aten = torch.ops.aten


def mix(terms: Terms, weights: Tensor) -> Tensor:
    """Compute `Kernels.mix`."""
    total: Tensor | None = None
    for term, weight in zip(terms, _expand_to_channels(weights, terms[0]), strict=True):
        image = _normalize(term, weight) if term.normalized else term.image * weight
        total = image if total is None else total.add_(image)
    assert total is not None, "a mixture has terms"
    return total


def mix_backward(
    gradient: Tensor, terms: Terms, weights: Tensor, slots: Slots, *, weights_wanted: bool = True
) -> Tensor | None:
    """Compute `Kernels.mix_backward`."""
    by_weight = []
    for term, weight, slot in zip(terms, _expand_to_channels(weights, terms[0]), slots, strict=True):
        if term.normalized:
            by_image, found = _normalize_backward(gradient, term, weight, (slot is not None, weights_wanted))
        else:
            by_image = None if slot is None else gradient * weight
            found = (gradient * term.image).view(-1, len(weight)).sum(0) if weights_wanted else None
        if slot is not None and by_image is not None:
            slot.add(by_image)
        if found is not None:
            by_weight.append(found)
    return torch.stack(by_weight).sum(1) if weights_wanted else None


def _expand_to_channels(weights: Tensor, term: Term) -> tuple[Tensor, ...]:
    """Repeat each weight for every channel."""
    return weights[:, None].expand(-1, term.image.shape[-1]).contiguous().unbind()


def _normalize(term: Term, weight: Tensor) -> Tensor:
    """Return the image with mean 0 and deviation `weight`, and store its moments in the term."""
    result: Tensor
    result, *moments = aten.native_batch_norm(
        term.image.permute(0, 3, 1, 2), weight, None, None, None, True, 0.0, EPSILON
    )
    if term.moments is None:
        term.moments = torch.stack(moments)
    return result.permute(0, 2, 3, 1).contiguous()


def _normalize_backward(
    gradient: Tensor, term: Term, weight: Tensor, wanted: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of the image and of each channel's weight, as far as wanted."""
    assert term.moments is not None, "the forward pass fills them in"
    mean, deviation = term.moments.unbind()
    first, image = gradient.permute(0, 3, 1, 2), term.image.permute(0, 3, 1, 2)
    by_image, by_weight, _ = aten.native_batch_norm_backward(
        first, image, weight, None, None, mean, deviation, True, EPSILON, [*wanted, False]
    )
    return by_image.permute(0, 2, 3, 1).contiguous() if wanted[0] else None, by_weight
