"""The auxiliary head of DARTS: a second classifier at two thirds of the depth, so that early cells learn sooner.

It takes part in training only. Its loss is added to that of the network with a small weight (Szegedy et al., 2015).
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from archloom.core.errors import SettingError
from archloom.operations import Normalize

POOL = 5  # kernel of the pool in front
SIDE = 2  # of the image behind it at least: what the second convolution spans


class AuxiliaryHead(nn.Sequential):
    """A wide average pool, a 1x1 and a 2x2 convolution, a linear layer.

    Made for images of 8 pixels (7 where the stride is 2), of which the pool leaves 2x2. Larger ones leave more, and the
    linear layer sees the mean; smaller ones are pooled to 2x2.
    """

    def __init__(self, channels: int, classes: int, normalize: Normalize, *, stride: int = 3) -> None:
        super().__init__(
            nn.ReLU(),
            _Pool(stride),
            nn.Conv2d(channels, 128, 1, bias=False),
            normalize(128),
            nn.ReLU(),
            nn.Conv2d(128, 768, SIDE, bias=False),
            normalize(768),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(768, classes),
        )


class _Pool(nn.Module):
    def __init__(self, stride: int) -> None:
        super().__init__()
        self._stride = stride

    def forward(self, x: Tensor) -> Tensor:
        side = min(x.shape[-2:])
        if side < SIDE:
            raise SettingError(
                f"network.auxiliary must be false for images so small: at two thirds of the cells {side} pixel is left "
                f"of a side, and the auxiliary head needs {SIDE}"
            )
        if side < POOL + self._stride * (SIDE - 1):
            return F.adaptive_avg_pool2d(x, SIDE)
        return F.avg_pool2d(x, POOL, self._stride)

    def count_multiply_adds(self, inputs: object, output: Tensor) -> int:
        return 0
