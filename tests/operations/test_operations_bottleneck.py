"""Inverted bottlenecks against the same written out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.operations.bottleneck import ACTIVATIONS, InvertedBottleneck, SeparableConv, SqueezeExcite
from archloom.supernet import Extent, Gate, LayerChoice, Width
from archloom.supernet.normalization import BatchNorm

GATES = {"kernel": Gate(index=1), "squeeze": Gate(index=1), "expansion": Gate(index=0)}


def normalize(channels: int) -> nn.Module:
    return BatchNorm(channels, affine=False, track_running_stats=False)


def norm(x: Tensor) -> Tensor:
    return F.batch_norm(x, None, None, training=True)


def layer_choice(part: str, make) -> LayerChoice:
    return LayerChoice(part, {"kernel": ("3", "5"), "squeeze": ("off", "on")}[part], make)


def bottleneck(stride: int = 1, activation: str = "hard_swish") -> InvertedBottleneck:
    torch.manual_seed(0)
    return InvertedBottleneck(
        Width.from_options("in", ("8", "16")),
        Width.from_options("out", ("8", "24")),
        Width.from_options("expansion", ("2", "4")),
        layer_choice=layer_choice,
        normalize=normalize,
        stride=stride,
        activation=activation,
        masked=False,
    ).double()


def image(channels: int) -> Tensor:
    return torch.randn(3, channels, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("activation", ["relu", "relu6", "swish", "hard_swish"])
def test_a_narrow_bottleneck_uses_the_first_channels_of_every_kernel(stride: int, activation: str) -> None:
    module, x = bottleneck(stride, activation), image(8)
    act = {"relu": torch.relu, "relu6": lambda x: x.clamp(0, 6), "swish": lambda x: x * x.sigmoid()}
    act["hard_swish"] = lambda x: x * (x + 3).clamp(0, 6) / 6
    inner = act[activation](norm(F.conv2d(x, module.expand.weight[:16, :8])))
    kernel = module.kernel.candidates["5"].weight[:16]
    looked = act[activation](norm(F.conv2d(inner, kernel, stride=stride, padding=2, groups=16)))
    squeeze = module.squeeze.candidates["on"]
    hidden = torch.relu(F.conv2d(looked.mean((2, 3), True), squeeze.squeeze.weight[:8, :16], squeeze.squeeze.bias[:8]))
    gate = F.conv2d(hidden, squeeze.excite.weight[:16, :8], squeeze.excite.bias[:16])
    scaled = looked * ((gate + 3).clamp(0, 6) / 6)
    expected = norm(F.conv2d(scaled, module.project.weight[:24, :16]))
    torch.testing.assert_close(module(x, GATES, 8, Extent(24)), expected)


def test_a_warm_up_averages_depthwise_results_before_they_are_normalised() -> None:
    module, x = bottleneck(), image(16)
    gates = {"kernel": Gate(weights=torch.tensor([0.5, 0.5])), "squeeze": Gate(index=0), "expansion": Gate(index=1)}
    inner = F.hardswish(norm(F.conv2d(x, module.expand.weight)))
    three, five = (
        F.conv2d(inner, module.kernel.candidates[k].weight, padding=int(k) // 2, groups=64) for k in ("3", "5")
    )
    expected = norm(F.conv2d(F.hardswish(norm((three + five) / 2)), module.project.weight[:8]))
    torch.testing.assert_close(module(x, gates, 16, Extent(8)), expected)
    assert module.runs_several(gates)
    assert not module.runs_several(GATES)


def test_a_separable_convolution_widens_nothing() -> None:
    torch.manual_seed(0)
    widths = Width.from_options("in", ("8", "16")), Width.from_options("out", ("8", "24"))
    module, x = SeparableConv(*widths, layer_choice=layer_choice, normalize=normalize, masked=False).double(), image(8)
    kernel = module.kernel.candidates["5"].weight[:8]
    looked = norm(F.conv2d(x, kernel, padding=2, groups=8)).relu()
    expected = norm(F.conv2d(looked, module.project.weight[:24, :8]))
    torch.testing.assert_close(module(x, GATES, 8, Extent(24)), expected)


def test_squeezing_rounds_to_eight() -> None:
    assert SqueezeExcite(72, masked=False).squeeze.out_channels == 24
    assert SqueezeExcite(960, masked=False).squeeze.out_channels == 240


def test_activations_make_nothing_of_zeros() -> None:
    """Else masks would have to come after them, and slices would not."""
    for activation in ACTIVATIONS.values():
        assert activation(torch.zeros(1)).item() == 0
