"""The backward pass of a depthwise convolution on a CPU, by the torch functions that are fast there.

The forward pass of torch is fast for every kernel. Its backward pass is fast for dense 3x3 kernels only, and otherwise
up to thirty times slower (`benchmarks/speed.py --variant torch` shows the effect on a search step). Therefore:

* the gradient of the image is a forward convolution of the gradient with the flipped kernel;
* the gradient of the kernel is computed for overlapping blocks of 3x3 weights;
* dilation is removed first: the rows and columns that a kernel sees together become an image of their own.

Images are NHWC, [batch, height, width, channels].
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

aten = torch.ops.aten


def gradient_of_image(gradient: Tensor, weight: Tensor, dilation: int) -> Tensor:
    """Return the gradient of the image, for a convolution without stride."""
    padding = dilation * (weight.shape[-1] // 2)
    flipped = weight.flip(2, 3)
    found = F.conv2d(gradient.permute(0, 3, 1, 2), flipped, None, 1, padding, dilation, len(weight))
    return found.permute(0, 2, 3, 1)


def gradient_of_kernel(gradient: Tensor, image: Tensor, weight: Tensor, dilation: int) -> Tensor:
    """Return the gradient of the kernel, for a convolution without stride."""
    gradient, image = (_split_dilation(one, dilation) for one in (gradient, image))
    if weight.shape[-1] == 3:
        return _gradient_of_3x3_kernel(gradient, image, weight, padding=1)
    side, (height, width) = weight.shape[-1], image.shape[1:3]
    found, edge = torch.empty_like(weight), side // 2
    padded = F.pad(image, (0, 0, edge, edge, edge, edge))
    for row in range(0, side - 2, 2):
        for column in range(0, side - 2, 2):
            seen = padded[:, row : row + height + 2, column : column + width + 2].contiguous()
            three = weight[..., :3, :3].contiguous()
            found[..., row : row + 3, column : column + 3] = _gradient_of_3x3_kernel(gradient, seen, three, padding=0)
    return found


def undo_stride(gradient: Tensor, image: Tensor, stride: int) -> Tensor:
    """Return the gradient of the output that a convolution without stride would have: zero at the pixels left out."""
    if stride == 1:
        return gradient
    found = gradient.new_zeros((*image.shape[:3], gradient.shape[3]))
    found[:, ::stride, ::stride] = gradient
    return found


def _gradient_of_3x3_kernel(gradient: Tensor, image: Tensor, weight: Tensor, *, padding: int) -> Tensor:
    _, found, _ = aten.convolution_backward(
        gradient.permute(0, 3, 1, 2), image.permute(0, 3, 1, 2), weight, None, [1, 1], [padding] * 2, [1, 1], False,
        [0, 0], len(weight), [False, True, False],
    )  # fmt: skip
    by_weight: Tensor = found
    return by_weight


def _split_dilation(image: Tensor, dilation: int) -> Tensor:
    """Return every `dilation`-th row and column as images, padded with zeros: [dilation² b, h, w, c]."""
    if dilation == 1:
        return image
    batch, height, width, channels = image.shape
    image = F.pad(image, (0, 0, 0, -width % dilation, 0, -height % dilation))
    parts = image.view(batch, -(-height // dilation), dilation, -(-width // dilation), dilation, channels)
    return parts.permute(2, 4, 0, 1, 3, 5).reshape(dilation**2 * batch, *parts.shape[1::2])
