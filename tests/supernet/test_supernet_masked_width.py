"""Widths: what a gate leaves of a layer, and that slicing a kernel is masking its channels."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from archloom.core.errors import SettingError
from archloom.supernet import Extent, Gate, SharedConv2d, SharedLinear, Width, normalize_first_channels

WIDTH = Width.from_options("w", ("2", "4", "6"))


def test_a_path_takes_one_width_and_a_warm_up_the_largest() -> None:
    assert WIDTH.extent({"w": Gate(index=1)}) == Extent(4)
    assert WIDTH.extent({"w": Gate(index=2)}) == Extent(WIDTH.largest) == Extent(6)
    assert WIDTH.extent({"w": Gate(index=0)}, sizes=[8, 16, 24]) == Extent(8)


def test_one_option_needs_no_gate() -> None:
    assert Width.from_options("w", ("4",)).extent(None) == Extent(4)


def test_a_mixture_gives_each_channel_the_weights_of_the_options_it_is_in() -> None:
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64, requires_grad=True)
    extent = WIDTH.extent({"w": Gate(weights=weights)})
    assert extent.channels == 6
    x = torch.ones(1, 6, 2, 2, dtype=torch.float64)
    result = extent.weigh(x)
    torch.testing.assert_close(result[0, :, 0, 0], torch.tensor([1.0, 1.0, 0.5, 0.5, 0.2, 0.2], dtype=torch.float64))
    (gradient,) = torch.autograd.grad(result[0, :, 0, 0].sum(), weights)
    assert gradient.tolist() == [2.0, 4.0, 6.0]


def test_a_hard_sample_is_weighed_so_that_its_weight_has_a_gradient() -> None:
    weights = torch.tensor([0.2, 1.0, 0.3], requires_grad=True)
    extent = WIDTH.extent({"w": Gate(index=1, weights=weights)})
    assert extent.channels == 4
    (gradient,) = torch.autograd.grad(extent.weigh(torch.ones(1, 4, 1, 1)).sum(), weights)
    assert gradient.tolist() == [0.0, 4.0, 0.0]


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        (Gate(index=torch.tensor([0, 1])), "'w' is a width: all images of a batch must have the same"),
        (Gate(weights=torch.ones(2, 3)), "'w' is a width: all images of a batch must have the same"),
        (Gate(), "'w' is a width: its gate cannot be closed"),
    ],
)
def test_gates_that_a_width_cannot_follow_are_refused(gate: Gate, message: str) -> None:
    with pytest.raises(SettingError, match=f"^{message}"):
        WIDTH.extent({"w": gate})


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_a_sliced_convolution_is_the_first_channels_of_the_masked_one(depthwise: bool, bias: bool) -> None:
    torch.manual_seed(0)
    groups = 6 if depthwise else 1
    masked, sliced = (
        SharedConv2d(6, 6, 3, 1, 1, groups=groups, bias=bias, masked=is_masked).double() for is_masked in (True, False)
    )
    sliced.load_state_dict(masked.state_dict())
    incoming, outgoing = (4, 4) if depthwise else (4, 2)
    x = torch.randn(2, incoming, 5, 5, dtype=torch.float64)
    extent = Extent(outgoing)
    wide = masked(F.pad(x, (0, 0, 0, 0, 0, 6 - incoming)), extent)
    narrow = sliced(x, extent)
    torch.testing.assert_close(wide[:, :outgoing], narrow)
    assert wide[:, outgoing:].count_nonzero() == 0
    weights = torch.randn_like(narrow)
    wide[:, :outgoing].mul(weights).sum().backward()
    narrow.mul(weights).sum().backward()
    for one, other in zip(masked.parameters(), sliced.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    assert sliced.weight.grad is not None
    assert sliced.weight.grad[outgoing:].count_nonzero() == 0


def test_a_kernel_notes_what_of_it_a_graph_hangs_on() -> None:
    layer = SharedConv2d(6, 6, 1)
    layer(torch.zeros(1, 4, 2, 2), Extent(2))
    assert layer.used_sizes == {"weight": (2, 4), "bias": (2,)}
    with torch.no_grad():
        layer(torch.zeros(1, 6, 2, 2), Extent(4))
    assert layer.used_sizes == {"weight": (2, 4), "bias": (2,)}  # no graph hangs on an evaluation
    layer(torch.zeros(1, 6, 2, 2))
    assert layer.used_sizes is None


def test_a_linear_layer_reads_the_features_that_there_are() -> None:
    layer = SharedLinear(6, 3).double()
    x = torch.randn(2, 4, dtype=torch.float64)
    torch.testing.assert_close(layer(x), layer(F.pad(x, (0, 2))))


def test_a_normalisation_for_all_channels_serves_the_first() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5, 5, dtype=torch.float64)
    norm = nn.BatchNorm2d(6).double()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
    expected = F.batch_norm(x, None, None, norm.weight[:4], norm.bias[:4], training=True)
    torch.testing.assert_close(normalize_first_channels(norm, x), expected)
    assert norm.running_mean is not None and norm.running_var is not None
    torch.testing.assert_close(norm.running_mean, torch.cat([0.1 * mean, torch.zeros(2, dtype=torch.float64)]))
    norm.eval()
    expected = F.batch_norm(x, 0.1 * mean, 0.9 + 0.1 * variance, norm.weight[:4], norm.bias[:4])
    torch.testing.assert_close(normalize_first_channels(norm, x), expected)
