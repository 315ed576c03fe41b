"""The way back through a depthwise convolution on a CPU, by those of torch's functions that are fast there.

Forwards, torch is fast whatever the kernel; backwards only with 3x3 pixels next to each other, and otherwise up to
thirty times slower (`benchmarks/speed.py --variant torch` has what that comes to in a step). So

* the gradient by the image is a convolution forwards: of the gradient, with the kernel turned round;
* the gradient by the kernel is found for 3x3 places at a time, which overlap;
* what is dilated is taken apart first: rows and columns that a kernel sees together become an image of their own.

Images are pixels-last, [batch, height, width, channels].
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

aten = torch.ops.aten


def gradient_of_image(gradient: Tensor, weight: Tensor, dilation: int) -> Tensor:
    """Gradient by the image of a convolution without stride."""
    padding = dilation * (weight.shape[-1] // 2)
    turned = weight.flip(2, 3)
    found = F.conv2d(gradient.permute(0, 3, 1, 2), turned, None, 1, padding, dilation, len(weight))
    return found.permute(0, 2, 3, 1)


def gradient_of_kernel(gradient: Tensor, image: Tensor, weight: Tensor, dilation: int) -> Tensor:
    """Gradient by the kernel of a convolution without stride."""
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
    """The gradient by all that a convolution would have had without its stride: zero by what it left out."""
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
    """Every `dilation`-th row and column as images: [dilation² b, h, w, c], filled up with zeros where it must."""
    if dilation == 1:
        return image
    batch, height, width, channels = image.shape
    image = F.pad(image, (0, 0, 0, -width % dilation, 0, -height % dilation))
    parts = image.view(batch, -(-height // dilation), dilation, -(-width // dilation), dilation, channels)
    return parts.permute(2, 4, 0, 1, 3, 5).reshape(dilation**2 * batch, *parts.shape[1::2])
