"""The way back through a depthwise convolution against torch's own, in double precision."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from archloom.fast import depthwise


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("side", [3, 5, 7])
@pytest.mark.parametrize("size", [(6, 8), (7, 5), (1, 4)])
def test_gradients_are_torchs_own(size: tuple[int, int], side: int, dilation: int, stride: int) -> None:
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(2, *size, 3, generator=generator, dtype=torch.float64)
    weight = torch.randn(3, 1, side, side, generator=generator, dtype=torch.float64)
    leaves = image.requires_grad_(), weight.requires_grad_()
    result = F.conv2d(image.permute(0, 3, 1, 2), weight, None, stride, dilation * (side // 2), dilation, 3)
    gradient = torch.randn(result.shape, generator=generator, dtype=torch.float64)
    expected = torch.autograd.grad(result, leaves, gradient)

    whole = depthwise.undo_stride(gradient.permute(0, 2, 3, 1), image, stride)
    torch.testing.assert_close(depthwise.gradient_of_image(whole, weight, dilation), expected[0])
    torch.testing.assert_close(depthwise.gradient_of_kernel(whole, image, weight, dilation), expected[1])
