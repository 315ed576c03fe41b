"""Mixing on torch's functions: normalise, weigh and add up images, several pixels at a time.

torch goes through the channels of a pixel by vectors, and number by number where they do not fill one. So what can be
done with several pixels at once is: [pixels, channels] seen as [pixels / side, side * channels].
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from archloom.kernels.terms import EPSILON, Slot, Term

aten = torch.ops.aten
LANES = 512  # numbers in a row: enough that the work in a row outweighs going to the next
NARROW = 16  # a product of matrices is fast from here on; a larger one would only have more zeros to multiply with


def mix(terms: Sequence[Term], weights: Tensor) -> Tensor:
    """As `Kernels.mix`."""
    for term in terms:
        if term.normalized and term.moments is None:
            term.moments = _moments(term.image)
    mean, deviation = _moments_of(terms)
    scales = weights[:, None] * deviation
    first, side = terms[0].image, side_by_side(terms[0].image)
    *wide, shift = torch.cat([scales, -(scales * mean).sum(0, keepdim=True)]).repeat(1, side).unbind()
    total = torch.addcmul(shift, _rows(first, side), wide[0])
    for term, scale in zip(terms[1:], wide[1:], strict=True):
        total.addcmul_(_rows(term.image, side), scale)
    return total.view(first.shape)


def mix_backward(
    gradient: Tensor,
    terms: Sequence[Term],
    weights: Tensor,
    slots: Sequence[Slot | None],
    *,
    weights_wanted: bool = True,
) -> Tensor | None:
    """As `Kernels.mix_backward`.

    With G the sum of the gradient over pixels and S that of gradient times normalised image, a normalised image x
    gets weight / std * (gradient - G / pixels - normalised x * S / pixels): a sum of multiples of gradient and x.
    """
    side, pixels = side_by_side(gradient), gradient[..., 0].numel()
    rows = _rows(gradient, side)
    products = [
        _folded(rows * _rows(term.image, side), side)
        if weights_wanted or (term.normalized and slot is not None)
        else torch.zeros_like(gradient[0, 0, 0])
        for term, slot in zip(terms, slots, strict=True)
    ]
    total, (mean, deviation) = _folded(rows, side), _moments_of(terms)
    by_scale = deviation * torch.addcmul(torch.stack(products), mean, total, value=-1)
    scale = weights[:, None] * deviation
    by_image = scale * deviation * by_scale / -pixels
    shift = scale * total / -pixels - by_image * mean
    wide = torch.stack([scale, by_image, shift], dim=1).repeat(1, 1, side)
    for term, slot, own in zip(terms, slots, wide.unbind(), strict=True):
        if slot is not None:
            slot.put(_by_image(rows, term, own, side).view(gradient.shape))
    return by_scale.sum(1) if weights_wanted else None


def _by_image(gradient: Tensor, term: Term, own: Tensor, side: int) -> Tensor:
    """The gradient by a term's image, in rows; `own` has what to multiply gradient and image with and what to add."""
    scale, by_image, shift = own.unbind()
    if not term.normalized:
        return gradient * scale
    return torch.addcmul(shift, gradient, scale).addcmul_(_rows(term.image, side), by_image)


def _moments(image: Tensor) -> Tensor:
    """Mean and 1/std of every channel, [2, channels]."""
    if not image.is_cpu:
        first = image.permute(0, 3, 1, 2)
        _, mean, deviation = aten.native_batch_norm(first, None, None, None, None, True, 0.0, EPSILON)
        return torch.stack([mean, deviation])
    side = side_by_side(image)
    found = aten.batch_norm_update_stats(_rows(image, side), None, None, 0.0)
    means, variances = (one.view(side, -1) for one in found)
    between, mean = torch.var_mean(means, 0, correction=0)
    return torch.stack([mean, variances.mean(0).add_(between).add_(EPSILON).rsqrt_()])


def _moments_of(terms: Sequence[Term]) -> tuple[Tensor, Tensor]:
    """Mean and 1/std of all terms, each [terms, channels]; what counts as it is has 0 and 1."""
    moments = []
    for term in terms:
        if term.normalized:
            assert term.moments is not None, "the way forwards fills them in"
            moments.append(term.moments)
        else:
            one = torch.ones_like(term.image[0, 0, 0])
            moments.append(torch.stack([torch.zeros_like(one), one]))
    mean, deviation = torch.stack(moments, dim=1).unbind()
    return mean, deviation


# --- pixels side by side


def side_by_side(image: Tensor, channels: int = 0, most: int = LANES) -> int:
    """How many pixels are taken together: a power of two that divides their number."""
    channels, pixels, side = channels or image.shape[-1], image[..., 0].numel(), 1
    while 2 * side * channels <= most and pixels % (2 * side) == 0:
        side *= 2
    return side


def repeated(matrices: Tensor, side: int) -> Tensor:
    """Matrices [n, in, out] along the diagonal, once for each of the pixels side by side: [n, side in, side out]."""
    if side == 1:
        return matrices
    count, rows, columns = matrices.shape
    same = torch.eye(side, dtype=matrices.dtype, device=matrices.device)[None, :, None, :, None]
    return (same * matrices[:, None, :, None, :]).view(count, side * rows, side * columns)


def _rows(image: Tensor, side: int) -> Tensor:
    return image.reshape(-1, side * image.shape[-1])


def _folded(rows: Tensor, side: int) -> Tensor:
    """Sums over all pixels, [channels]."""
    return rows.sum(0).view(side, -1).sum(0)
