"""The kernels of a fused cell in torch: the reference for each, on any device and in any precision.

Images are NHWC, [batch, height, width, channels], with channels adjacent in memory. They may be a slice of the channels
of a wider image. Normalisation is by batch statistics, without scale or shift.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from archloom.fast import depthwise, mix_by_row, mixing
from archloom.fast.kernel_arguments import Geometries, Geometry, Slot, Slots, Term, Terms
from archloom.fast.recurrent_segment import Cell, SegmentRunner, SegmentTensors, TorchSegment

aten = torch.ops.aten


class Kernels:
    """Compute the parts of a fused cell."""

    name = "torch"
    convolution_dtype: torch.dtype | None = None  # of dense convolutions; None: that of the images

    def in_bfloat16(self) -> Kernels:
        """Return the same kernels, whose dense convolutions round images, weights and gradients to bfloat16."""
        other = copy(self)
        other.convolution_dtype = torch.bfloat16
        return other

    # --- recurrent cells

    def segment(self, cell: Cell, tensors: SegmentTensors) -> SegmentRunner:
        """Return what runs a segment of a recurrent cell."""
        return TorchSegment(cell, tensors)

    def decode(self, states: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
        """Return the logits of the next words: [tokens, H], [words, H], [words] -> [tokens, words]."""
        return F.linear(states, weights, bias)

    # --- normalise, weigh and add up

    def mix(self, terms: Terms, weights: Tensor) -> Tensor:
        """Return the weighted sum of all terms, normalised where the term says so; fills in missing moments."""
        return mixing.choose_mix(terms[0].image)(terms, weights)

    def mix_backward(
        self, gradient: Tensor, terms: Terms, weights: Tensor, slots: Slots, *, weights_wanted: bool = True
    ) -> Tensor | None:
        """Return the gradient of the weights, if wanted; add the gradient of each term's image to its slot, if any."""
        back = mixing.choose_mix_backward(gradient)
        return back(gradient, terms, weights, slots, weights_wanted=weights_wanted)

    # --- depthwise convolutions of a rectified image

    def depthwise(
        self, term: Term, weights: Sequence[Tensor], geometry: Geometries, *, out: Tensor | None = None
    ) -> Tensor:
        """Return several depthwise convolutions of one image, [kernels, batch, height, width, channels].

        The image is normalised where the term says so (which fills in its moments), then rectified. Weights are
        [channels, 1, k, k]; all geometries have the same stride.
        """
        rectified = _to_nchw(_rectify(term))
        results = [
            F.conv2d(rectified, weight, None, shape.stride, _padding(weight, shape), shape.dilation, len(weight))
            for weight, shape in zip(weights, geometry, strict=True)
        ]
        if len(results) == 1 and out is None:
            return _to_nhwc(results[0]).contiguous().unsqueeze(0)
        return torch.stack([_to_nhwc(result) for result in results], out=out)

    def depthwise_backward(
        self,
        gradients: Tensor,
        term: Term,
        weights: Sequence[Tensor],
        geometry: Geometries,
        slot: Slot | None,
        by_weights: Sequence[Tensor] | None = None,
    ) -> None:
        """Write the gradients of the weights, if wanted; add that of the image before ReLU and norm to the slot."""
        rectified = _rectify(term)
        total: Tensor | None = None
        wanted = slot is not None, by_weights is not None
        for number, (gradient, weight, shape) in enumerate(zip(gradients, weights, geometry, strict=True)):
            by_image, by_kernel = _depthwise_backward(gradient, rectified, weight, shape, wanted)
            if by_kernel is not None and by_weights is not None:
                by_weights[number].copy_(by_kernel)
            if by_image is not None:
                total = by_image if total is None else total.add_(by_image)
        if slot is not None:
            assert total is not None
            masked = aten.threshold_backward(total, rectified, 0)
            if term.normalized:
                mixing.choose_mix_backward(masked)(masked, [term], masked.new_ones(1), [slot], weights_wanted=False)
            else:
                slot.add(masked)

    def rectify_backward(self, gradient: Tensor, image: Tensor, slot: Slot) -> None:
        """Add the gradient of an image to the slot, given the gradient of its positive part."""
        slot.add(aten.threshold_backward(gradient, image, 0))

    # --- 1x1 convolutions

    def products(self, images: Tensor, matrices: Tensor) -> Tensor:
        """Multiply the pixels of each image by its matrix: [n or 1, b, h, w, in], [n, in, out] -> [n, b, h, w, out]."""
        side = mix_by_row.pixels_per_row(images[0], max(matrices.shape[1:]), mix_by_row.MATRIX_ROW_LENGTH)
        pixels = images.reshape(len(images), -1, side * images.shape[-1]).expand(len(matrices), -1, -1)
        return torch.bmm(pixels, mix_by_row.repeat_on_diagonal(matrices, side)).view(
            len(matrices), *images.shape[1:4], -1
        )

    def summed_products(self, images: Tensor, matrices: Tensor, total: Tensor | None) -> Tensor:
        """Return the sum of the products over n images, added to `total` in place if given: [b, h, w, out]."""
        side = mix_by_row.pixels_per_row(images[0], max(matrices.shape[1:]), mix_by_row.MATRIX_ROW_LENGTH)
        pixels = images.reshape(len(images), -1, side * images.shape[-1])
        for image, matrix in zip(pixels, mix_by_row.repeat_on_diagonal(matrices, side), strict=True):
            if total is None:
                total = (image @ matrix).view(*images.shape[1:4], -1)
            else:
                total.view(-1, side * total.shape[-1]).addmm_(image, matrix)
        assert total is not None
        return total

    def inner_products(self, left: Tensor, right: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Sum channel products over all pixels: [n, b, h, w, x], [n or 1, b, h, w, y] -> [n, x, y]."""
        wide, high = left.shape[-1], right.shape[-1]
        side = mix_by_row.pixels_per_row(left[0], max(wide, high), mix_by_row.MATRIX_ROW_LENGTH)
        lines, columns = (one.reshape(len(one), -1, side * one.shape[-1]) for one in (left, right))
        found = torch.bmm(lines.transpose(1, 2), columns.expand(len(left), -1, -1))
        found = found.view(len(left), side, wide, side, high).diagonal(dim1=1, dim2=3).sum(-1)
        return found if out is None else out.copy_(found)

    # --- 3x3 pools without padding

    def average_pool(self, image: Tensor, stride: int) -> Tensor:
        """Return averages over 3x3 pixels, the border left out."""
        if stride == 1:
            return _sums_of_nine(image).mul_(_shares_of_nine(image))
        return _to_nhwc(F.avg_pool2d(_to_nchw(image), 3, stride, 1, count_include_pad=False))

    def average_pool_backward(self, gradient: Tensor, image: Tensor, stride: int, slot: Slot) -> None:
        """Add the gradient by the pooled image to a slot."""
        if stride == 1:
            slot.add(_sums_of_nine(gradient * _shares_of_nine(image)))
            return
        by_image = aten.avg_pool2d_backward(
            _to_nchw(gradient), _to_nchw(image), [3, 3], [stride] * 2, [1, 1], False, False, None
        )
        slot.add(_to_nhwc(by_image))

    def max_pool(self, image: Tensor, stride: int) -> Tensor:
        """Return maxima over 3x3 pixels."""
        return _to_nhwc(F.max_pool2d(_to_nchw(image), 3, stride, 1))

    def max_pool_backward(self, gradient: Tensor, image: Tensor, stride: int, slot: Slot) -> None:
        """Find the largest pixels again: storing them in the forward pass would cost memory."""
        _, indices = aten.max_pool2d_with_indices(_to_nchw(image), [3, 3], [stride] * 2, [1, 1])
        by_image = aten.max_pool2d_with_indices_backward(
            _to_nchw(gradient), _to_nchw(image), [3, 3], [stride] * 2, [1, 1], [1, 1], False, indices
        )
        slot.add(_to_nhwc(by_image))


# --- pools


def _sums_of_nine(image: Tensor) -> Tensor:
    """Add the eight neighbours to every pixel: first along the height, then along the width."""
    for direction in (1, 2):
        total, length = image.clone(memory_format=torch.contiguous_format), image.shape[direction] - 1
        total.narrow(direction, 1, length).add_(image.narrow(direction, 0, length))
        total.narrow(direction, 0, length).add_(image.narrow(direction, 1, length))
        image = total
    return image


def _shares_of_nine(image: Tensor) -> Tensor:
    """Return the weight of each pixel in its pool, [height, width, 1]: pools at the border have fewer pixels."""
    return _shares(image.shape[1], image.shape[2], image.dtype, image.device)


@cache
def _shares(height: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return _sums_of_nine(torch.ones((1, height, width, 1), dtype=dtype, device=device)).reciprocal_().squeeze(0)


def _rectify(term: Term) -> Tensor:
    if not term.normalized:
        return F.relu(term.image)
    return F.relu_(mixing.choose_mix(term.image)([term], term.image.new_ones(1)))


def _depthwise_backward(
    gradient: Tensor, image: Tensor, weight: Tensor, shape: Geometry, wanted: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of the image and of the kernel, as far as wanted."""
    slow = shape.stride == 1 or shape.dilation > 1
    if image.is_cpu and slow and weight.shape[-1] > 1:  # elsewhere torch's own is fast
        whole = depthwise.undo_stride(gradient, image, shape.stride)
        return (
            depthwise.gradient_of_image(whole, weight, shape.dilation) if wanted[0] else None,
            depthwise.gradient_of_kernel(whole, image, weight, shape.dilation) if wanted[1] else None,
        )
    by_image, by_kernel, _ = aten.convolution_backward(
        _to_nchw(gradient), _to_nchw(image), weight, None, [shape.stride] * 2, [_padding(weight, shape)] * 2,
        [shape.dilation] * 2, False, [0, 0], len(weight), [*wanted, False],
    )  # fmt: skip
    return None if by_image is None else _to_nhwc(by_image), by_kernel


def _padding(weight: Tensor, shape: Geometry) -> int:
    return shape.dilation * (weight.shape[-1] // 2)


def _to_nchw(image: Tensor) -> Tensor:
    """View NHWC memory in the order of dimensions that torch's functions expect."""
    return image.permute(0, 3, 1, 2)


def _to_nhwc(image: Tensor) -> Tensor:
    return image.permute(0, 2, 3, 1)
