"""Mix by torch's element-wise functions: normalise, weigh and add images, several pixels per row.

torch processes the channels of a pixel by vectors, and number by number where they do not fill one. Several pixels are
therefore processed together: [pixels, channels] is viewed as [pixels / side, side * channels].
"""

from __future__ import annotations

import torch
from torch import Tensor

from archloom.fast.kernel_arguments import EPSILON, Slots, Term, Terms

aten = torch.ops.aten
ROW_LENGTH = 512  # numbers in a row: enough to hide the cost of starting the next one
MATRIX_ROW_LENGTH = 16  # matrix products are fast from here on; longer rows only add zeros to multiply with


def mix(terms: Terms, weights: Tensor) -> Tensor:
    """Compute `Kernels.mix`."""
    side = pixels_per_row(terms[0].image)
    _compute_moments([term for term in terms if term.normalized and term.moments is None], side)
    mean, deviation = _moments_of(terms)
    scales = weights[:, None] * deviation
    shift = (scales * mean).sum(0, keepdim=True).neg_()
    *wide, shift = _widen(torch.cat([scales, shift]), side).unbind()
    total = torch.addcmul(shift, _to_rows(terms[0].image, side), wide[0])
    for term, scale in zip(terms[1:], wide[1:], strict=True):
        total.addcmul_(_to_rows(term.image, side), scale)
    return total.view(terms[0].image.shape)


def mix_backward(
    gradient: Tensor, terms: Terms, weights: Tensor, slots: Slots, *, weights_wanted: bool = True
) -> Tensor | None:
    """Compute `Kernels.mix_backward`.

    With G the sum of the gradient over pixels and S that of gradient times normalised image, a normalised image x
    gets weight / std * (gradient - G / pixels - normalised x * S / pixels): a sum of multiples of gradient and x.
    """
    side, pixels = pixels_per_row(gradient), gradient[..., 0].numel()
    rows, size = _to_rows(gradient, side), gradient.shape[-1]
    sums = [
        (rows * _to_rows(term.image, side)).sum(0)
        if weights_wanted or (term.normalized and slot is not None)
        else torch.zeros_like(rows[0])
        for term, slot in zip(terms, slots, strict=True)
    ]
    folded = torch.cat([*sums, rows.sum(0)]).view(-1, side, size).sum(1)
    products, total = folded[:-1], folded[-1]
    mean, deviation = _moments_of(terms)
    by_scale = deviation * torch.addcmul(products, mean, total, value=-1)
    scale = weights[:, None] * deviation
    part = scale / -pixels
    by_image = part * deviation * by_scale
    shift = part * total - by_image * mean
    wide = _widen(torch.cat([scale, by_image, shift]), side).view(3, len(terms), -1)
    for term, slot, own in zip(terms, slots, wide.unbind(1), strict=True):
        if slot is not None:
            slot.add(_gradient_of_image(rows, term, own, side).view(gradient.shape))
    return by_scale.sum(1) if weights_wanted else None


def _gradient_of_image(gradient: Tensor, term: Term, own: Tensor, side: int) -> Tensor:
    """Return the gradient of a term's image in rows; `own` holds the factors of gradient and image, and the shift."""
    scale, by_image, shift = own.unbind()
    if not term.normalized:
        return gradient * scale
    return torch.addcmul(shift, gradient, scale).addcmul_(_to_rows(term.image, side), by_image)


def _compute_moments(terms: Terms, side: int) -> None:
    """Store mean and 1/std of every channel in the terms, [2, channels]."""
    if not terms:
        return
    found = [_statistics(_to_rows(term.image, side)) for term in terms]
    means, variances = torch.stack(found).view(len(terms), 2, side, -1).unbind(1)
    between, mean = torch.var_mean(means, 1, correction=0)
    deviation = variances.mean(1).add_(between).add_(EPSILON).rsqrt_()
    for term, moments in zip(terms, torch.stack([mean, deviation], dim=1), strict=True):
        term.moments = moments


def _statistics(rows: Tensor) -> Tensor:
    """Return mean and variance of every column, [2, columns]."""
    if rows.is_cpu:  # several times faster there than torch.var_mean
        return torch.stack(aten.batch_norm_update_stats(rows, None, None, 0.0))
    variance, mean = torch.var_mean(rows, 0, correction=0)
    return torch.stack([mean, variance])


def _moments_of(terms: Terms) -> tuple[Tensor, Tensor]:
    """Return mean and 1/std of all terms, each [terms, channels]; 0 and 1 for terms that are not normalised."""
    moments = []
    for term in terms:
        if term.normalized:
            assert term.moments is not None, "the forward pass fills them in"
            moments.append(term.moments)
        else:
            one = torch.ones_like(term.image[0, 0, 0])
            moments.append(torch.stack([torch.zeros_like(one), one]))
    mean, deviation = torch.stack(moments, dim=1).unbind()
    return mean, deviation


# --- several pixels per row


def pixels_per_row(image: Tensor, channels: int = 0, most: int = ROW_LENGTH) -> int:
    """Return how many pixels share a row: a power of two that divides their number."""
    channels, pixels, side = channels or image.shape[-1], image[..., 0].numel(), 1
    while 2 * side * channels <= most and pixels % (2 * side) == 0:
        side *= 2
    return side


def repeat_on_diagonal(matrices: Tensor, side: int) -> Tensor:
    """Repeat matrices [n, in, out] on the diagonal, once per pixel of a row: [n, side in, side out]."""
    if side == 1:
        return matrices
    count, rows, columns = matrices.shape
    same = torch.eye(side, dtype=matrices.dtype, device=matrices.device)[None, :, None, :, None]
    return (same * matrices[:, None, :, None, :]).view(count, side * rows, side * columns)


def _widen(columns: Tensor, side: int) -> Tensor:
    """Repeat numbers by channel, [n, channels], for all pixels of a row: [n, side channels]."""
    return columns[:, None].expand(-1, side, -1).reshape(len(columns), -1)


def _to_rows(image: Tensor, side: int) -> Tensor:
    return image.reshape(-1, side * image.shape[-1])
