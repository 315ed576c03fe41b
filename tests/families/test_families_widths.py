"""The size space's network: as published, one path is one network, slices are masks."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor, nn

from archloom.families import build_network
from archloom.families.widths import WidthsNetwork
from archloom.objectives import CostTable, cost_of
from archloom.spaces import Widths
from archloom.supernet import EveryOption, Gate, Only, inherit, path_gates

SPACE = Widths(options=(4, 6, 8))
POOLS = Widths(options=(4, 6), cell="|avg_pool_3x3~0|+|skip_connect~0|nor_conv_1x1~1|", cells_per_stage=2)
SPACES_TRIED = pytest.mark.parametrize("space", [SPACE, POOLS], ids=["published", "pools"])


def images() -> Tensor:
    return torch.randn(3, 2, 9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def supernet(space: Widths, **settings: bool) -> nn.Module:
    torch.manual_seed(0)
    return build_network(space, EveryOption(), classes=4, colours=2, **settings).double()


def by_hand(widths: list[int], classes: int) -> int:
    """Parameters of the published network: its convolutions, and twice a width for each normalisation."""

    def convolution(before: int, width: int, kernel: int = 3) -> int:
        return before * width * kernel**2 + 2 * width

    total = convolution(3, widths[0])
    for number, (before, width) in enumerate(zip([widths[0], *widths], widths, strict=False)):
        if number % 2:  # a residual block: two convolutions, and one beside them that is not normalised
            total += convolution(before, width) + convolution(width, width) + before * width
        else:  # a cell: two convolutions leave its input, three its inner states, and one edge hands its input on
            total += 2 * convolution(before, width) + 3 * convolution(width, width)
            total += 0 if before == width else convolution(before, width, 1)
    return total + 2 * widths[-1] + widths[-1] * classes + classes


@pytest.mark.parametrize("text", ["8:8:8:8:8", "8:16:24:32:64", "64:64:8:40:40"])
def test_parameters_are_those_counted_by_hand(text: str) -> None:
    table = CostTable(Widths(), classes=10, image_shape=(3, 32, 32))
    widths = [int(width) for width in text.split(":")]
    assert table.cost(Widths().parse(text)).parameters == by_hand(widths, 10)


@SPACES_TRIED
def test_a_path_computes_what_the_network_of_its_architecture_does(space: Widths) -> None:
    shared, rng = supernet(space), random.Random(0)
    table = CostTable(space, classes=4, image_shape=(2, 9, 9))
    for _ in range(5):
        architecture = space.sample(rng)
        resolve = Only(architecture, affine=False, running_statistics=False)
        alone = build_network(space, resolve, classes=4, colours=2).double()
        inherit(alone, shared)
        torch.testing.assert_close(
            alone(images()), shared(images(), path_gates(space, architecture)), rtol=0, atol=1e-10
        )
        trained = build_network(space, Only(architecture), classes=4, colours=2)
        assert table.cost(architecture) == cost_of(trained, (2, 9, 9))


@SPACES_TRIED
@pytest.mark.parametrize("mixed", [False, True])
def test_slicing_gives_the_values_and_gradients_of_masking(space: Widths, mixed: bool) -> None:
    sliced, masked = supernet(space), supernet(space, masked=True)
    masked.load_state_dict(sliced.state_dict())
    rng = random.Random(1)
    for _ in range(2):
        gates = dict(path_gates(space, space.sample(rng)))
        if mixed:
            gates = {d.name: Gate(weights=torch.rand(len(d.options), dtype=torch.float64)) for d in space.decisions}
        results = []
        for network in (sliced, masked):
            network.zero_grad()
            output = network(images(), gates)
            (output * torch.linspace(-1, 1, 4, dtype=torch.float64)).sum().backward()
            results.append((output, [parameter.grad for parameter in network.parameters()]))
        torch.testing.assert_close(results[0][0], results[1][0], rtol=0, atol=1e-10)
        for one, other in zip(results[0][1], results[1][1], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_masks_of_different_widths_can_be_added() -> None:
    narrow = SPACE.restrict({"width2": ["4"], "width3": ["6", "8"]})
    sliced, masked = supernet(narrow), supernet(narrow, masked=True)
    masked.load_state_dict(sliced.state_dict())
    for text in ("8:4:6:4:8", "4:4:8:8:8"):
        gates = path_gates(narrow, narrow.parse(text))
        torch.testing.assert_close(sliced(images(), gates), masked(images(), gates), rtol=0, atol=1e-10)


def test_a_width_multiplier_scales_every_layer() -> None:
    space = Widths()
    choices = Only(space.parse("8:16:24:32:64"))
    assert WidthsNetwork(space, choices, 3, 1).layer_widths == [8, 16, 24, 32, 64]
    double = WidthsNetwork(space, choices, 3, 1, width_multiplier=2.0)
    assert double.layer_widths == [16, 32, 48, 64, 128]
    assert double(torch.zeros(2, 1, 8, 8)).shape == (2, 3)
