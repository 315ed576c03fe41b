"""The inner loops of a fused cell, in plain torch: what each computes, on any device and in any precision.

Images here are pixels-last, [batch, height, width, channels], with channels adjacent in memory; they may be a slice of
the channels of a wider image. Normalisation is by the batch's own statistics, without scale or shift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

aten = torch.ops.aten
EPSILON = 1e-5  # of a normalisation, as torch has it


@dataclass(frozen=True)
class Geometry:
    """How a depthwise kernel walks over an image; its padding keeps the size, up to the stride."""

    stride: int = 1
    dilation: int = 1


@dataclass
class Term:
    """An image that counts as it is, or normalised. `moments` [2, channels] are its mean and 1/std, once known."""

    image: Tensor
    normalized: bool
    moments: Tensor | None = None


@dataclass
class Slot:
    """Where the gradients by an image gather: in a place of memory given from the start, or in the first that comes."""

    image: Tensor | None = None
    filled: bool = False

    def put(self, value: Tensor) -> None:
        """Take in a gradient that nobody else holds."""
        if self.image is None:
            self.image = value
        elif self.filled:
            self.image.add_(value)
        else:
            self.image.copy_(value)
        self.filled = True

    def room(self, like: Tensor) -> Tensor:
        """The place, made if there is none."""
        if self.image is None:
            self.image = torch.empty(like.shape, dtype=like.dtype, device=like.device)
        return self.image


def check_normalizable(image: Tensor) -> None:
    """One value per channel has no spread; torch refuses it in the same words."""
    if image.numel() == image.shape[-1]:
        raise ValueError(f"Expected more than 1 value per channel, got an image of shape {list(image.shape)}")


class Kernels:
    """The functions behind a fused cell."""

    name = "torch"

    # --- normalise, weigh and add up

    def mix(self, terms: Sequence[Term], weights: Tensor) -> Tensor:
        """The sum of all terms, each normalised if it asks for it, times its weight; fills in missing moments."""
        total: Tensor | None = None
        for term, weight in zip(terms, weights.unbind(), strict=True):
            part = _normalized(term, weight) if term.normalized else term.image * weight
            total = part if total is None else total.add_(part)
        assert total is not None
        return total

    def mix_backward(
        self,
        gradient: Tensor,
        terms: Sequence[Term],
        weights: Tensor,
        slots: Sequence[Slot | None],
        *,
        weights_wanted: bool = True,
    ) -> Tensor | None:
        """Gradient by the weights, if wanted; that by each term's image goes into its slot, where it has one."""
        by_weight = []
        for term, weight, slot in zip(terms, weights.unbind(), slots, strict=True):
            if term.normalized:
                by_weight.append(_normalized_backward(gradient, term, weight, slot))
            else:
                if weights_wanted:
                    by_weight.append(torch.dot(gradient.reshape(-1), term.image.reshape(-1)))
                if slot is not None:
                    slot.put(gradient * weight)
        return torch.stack(by_weight) if weights_wanted else None

    # --- depthwise convolutions of a rectified image

    def depthwise(
        self, term: Term, weights: Sequence[Tensor], geometry: Sequence[Geometry], *, out: Tensor | None = None
    ) -> Tensor:
        """Several depthwise convolutions of one image, [kernels, batch, height, width, channels].

        The image is normalised if the term asks for it (which fills in its moments), then rectified. Weights are
        [channels, 1, k, k]; all geometries have the same stride.
        """
        rectified = _first(_rectified(term))
        results = [
            F.conv2d(rectified, weight, None, shape.stride, _padding(weight, shape), shape.dilation, len(weight))
            for weight, shape in zip(weights, geometry, strict=True)
        ]
        return torch.stack([_last(result) for result in results], out=out)

    def depthwise_backward(
        self,
        gradients: Tensor,
        term: Term,
        weights: Sequence[Tensor],
        geometry: Sequence[Geometry],
        slot: Slot | None,
        *,
        weights_wanted: bool = True,
    ) -> list[Tensor] | None:
        """Gradients by the weights, if wanted; that by the image, through rectifier and normalisation, to the slot."""
        rectified = _first(_rectified(term))
        total: Tensor | None = None
        by_weight = []
        for gradient, weight, shape in zip(gradients, weights, geometry, strict=True):
            by_image, by_kernel, _ = aten.convolution_backward(
                _first(gradient), rectified, weight, None, [shape.stride] * 2, [_padding(weight, shape)] * 2,
                [shape.dilation] * 2, False, [0, 0], len(weight), [slot is not None, weights_wanted, False],
            )  # fmt: skip
            by_weight.append(by_kernel)
            total = by_image if total is None else total.add_(by_image)
        if slot is not None:
            assert total is not None
            masked = _last(aten.threshold_backward(total, rectified, 0))
            if term.normalized:
                _normalized_backward(masked, term, masked.new_ones(()), slot)
            else:
                slot.put(masked)
        return by_weight if weights_wanted else None

    def rectify_backward(self, gradient: Tensor, image: Tensor, slot: Slot) -> None:
        """The gradient by an image from that by its rectified self."""
        slot.put(aten.threshold_backward(gradient, image, 0))

    # --- convolutions of single pixels

    def products(self, images: Tensor, matrices: Tensor) -> Tensor:
        """The pixels of each image times its matrix: [n or 1, b, h, w, in] and [n, in, out] give [n, b, h, w, out]."""
        pixels = images.flatten(1, 3).expand(len(matrices), -1, -1)
        return torch.bmm(pixels, matrices).view(len(matrices), *images.shape[1:4], -1)

    def summed_products(self, images: Tensor, matrices: Tensor, total: Tensor | None) -> Tensor:
        """The same of n images, added up, and added to `total` in place if there is one: [b, h, w, out]."""
        for image, matrix in zip(images.flatten(1, 3), matrices, strict=True):
            if total is None:
                total = (image @ matrix).view(*images.shape[1:4], -1)
            else:
                total.view(-1, total.shape[-1]).addmm_(image, matrix)
        assert total is not None
        return total

    def inner_products(self, left: Tensor, right: Tensor) -> Tensor:
        """Channels of one image times those of another, over all pixels: [n, b, h, w, x], [n or 1, b, h, w, y]."""
        return torch.bmm(left.flatten(1, 3).transpose(1, 2), right.flatten(1, 3).expand(len(left), -1, -1))

    # --- pools of 3x3 pixels, the border left out

    def average_pool(self, image: Tensor, stride: int) -> Tensor:
        return _last(F.avg_pool2d(_first(image), 3, stride, 1, count_include_pad=False))

    def average_pool_backward(self, gradient: Tensor, image: Tensor, stride: int, slot: Slot) -> None:
        by_image = aten.avg_pool2d_backward(
            _first(gradient), _first(image), [3, 3], [stride] * 2, [1, 1], False, False, None
        )
        slot.put(_last(by_image))

    def max_pool(self, image: Tensor, stride: int) -> Tensor:
        return _last(F.max_pool2d(_first(image), 3, stride, 1))

    def max_pool_backward(self, gradient: Tensor, image: Tensor, stride: int, slot: Slot) -> None:
        """The place of the largest pixel is found anew, instead of being kept since the forward pass."""
        _, indices = aten.max_pool2d_with_indices(_first(image), [3, 3], [stride] * 2, [1, 1])
        by_image = aten.max_pool2d_with_indices_backward(
            _first(gradient), _first(image), [3, 3], [stride] * 2, [1, 1], [1, 1], False, indices
        )
        slot.put(_last(by_image))


def _normalized(term: Term, weight: Tensor | None = None) -> Tensor:
    """The image normalised, times a weight; fills in its moments."""
    scale = None if weight is None else weight.repeat(term.image.shape[-1])  # torch misreads an expanded weight
    image, mean, deviation = aten.native_batch_norm(_first(term.image), scale, None, None, None, True, 0.0, EPSILON)
    term.moments = torch.stack([mean, deviation])
    return _last(image)


def _normalized_backward(gradient: Tensor, term: Term, weight: Tensor, slot: Slot | None) -> Tensor:
    assert term.moments is not None
    image, by_scale, _ = aten.native_batch_norm_backward(
        _first(gradient), _first(term.image), weight.repeat(term.image.shape[-1]), None, None, *term.moments, True,
        EPSILON, [slot is not None, True, False],
    )  # fmt: skip
    if slot is not None:
        slot.put(_last(image))
    by_weight: Tensor = by_scale.sum()
    return by_weight


def _rectified(term: Term) -> Tensor:
    return F.relu_(_normalized(term)) if term.normalized else F.relu(term.image)


def _padding(weight: Tensor, shape: Geometry) -> int:
    return shape.dilation * (weight.shape[-1] // 2)


def _first(image: Tensor) -> Tensor:
    """Channels first, as torch's own functions have them: the same memory, seen otherwise."""
    return image.permute(0, 3, 1, 2)


def _last(image: Tensor) -> Tensor:
    return image.permute(0, 2, 3, 1)
