"""What a path left out of a shared kernel must come through a step to the bit, whatever the optimizer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from archloom.data.loader import Batch
from archloom.supernet import Extent, Gate, Gates, SharedConv2d, SharedLinear, SharedWeights, WeightSettings, Width

OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1),
}


class Network(nn.Module):
    """A layer whose width is chosen, between two that read and write it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = SharedConv2d(1, 6, 1)
        self.second = SharedConv2d(6, 4, 1)
        self.last = SharedLinear(4, 2)
        self.width = Width.from_options("w", ("2", "4", "6"))

    def forward(self, images: Tensor, gates: Gates) -> Tensor:
        x: Tensor = self.second(self.first(images, self.width.extent(gates)), Extent(4))
        logits: Tensor = self.last(x.relu().mean((2, 3)))
        return logits


def shared(name: str) -> SharedWeights:
    torch.manual_seed(0)
    network = Network()
    weights = SharedWeights(network, WeightSettings(weight_decay=0.1))
    weights.optimize_with(OPTIMIZERS[name](list(network.parameters())))
    return weights


def batch() -> Batch:
    return Batch(torch.randn(4, 1, 3, 3, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 0, 1]))


def everything(weights: SharedWeights) -> dict[str, list[Tensor]]:
    """Values and the optimizer's figures of every parameter."""
    return {
        name: [parameter.detach().clone()]
        + [
            figure.clone()
            for figure in weights._optimizer.state[parameter].values()
            if isinstance(figure, Tensor) and figure.shape == parameter.shape
        ]
        for name, parameter in weights.parameters.items()
    }


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_unused_slices_of_a_kernel_stay_frozen(name: str) -> None:
    weights = shared(name)
    for index in (2, 1):
        weights.fit(batch(), {"w": Gate(index=index)})
    before = everything(weights)
    weights.fit(batch(), {"w": Gate(index=0)})
    after = everything(weights)
    used = {"first.weight": (2,), "first.bias": (2,), "second.weight": (4, 2)}
    for parameter, extents in used.items():
        inside = tuple(slice(count) for count in extents)
        assert len(before[parameter]) > 1
        for earlier, later in zip(before[parameter], after[parameter], strict=True):
            assert not torch.equal(earlier[inside], later[inside])
            outside = torch.ones_like(earlier, dtype=torch.bool)
            outside[inside] = False
            assert torch.equal(earlier[outside], later[outside])
    assert not torch.equal(before["second.bias"][0], after["second.bias"][0])
    assert not torch.equal(before["last.weight"][0], after["last.weight"][0])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_used_part_moves_as_if_the_kernel_were_as_narrow(name: str) -> None:
    """Three steps through the narrowest width, against a network that has no other."""
    weights, narrow = shared(name), shared(name)
    network = narrow._network
    assert isinstance(network, Network)
    network.first, network.second = SharedConv2d(1, 2, 1), SharedConv2d(2, 4, 1)
    wide = weights._network
    assert isinstance(wide, Network)
    for layer in ("first", "second"):
        own = getattr(network, layer)
        for key, value in own.named_parameters():
            value.data.copy_(getattr(getattr(wide, layer), key)[tuple(slice(n) for n in value.shape)])
    alone = SharedWeights(network)
    alone.optimize_with(OPTIMIZERS[name](list(network.parameters())))
    for _ in range(3):
        one = weights.fit(batch(), {"w": Gate(index=0)})
        other = alone.fit(batch(), {"w": Gate(index=0)})
        torch.testing.assert_close(one.loss, other.loss)
    torch.testing.assert_close(wide.second.weight[:, :2], network.second.weight)


def test_figures_that_a_first_step_makes_are_zero_where_nothing_was_used() -> None:
    weights = shared("sgd")
    weights.fit(batch(), {"w": Gate(index=0)})
    values, momentum = everything(weights)["first.weight"]
    assert momentum[2:].count_nonzero() == 0
    assert momentum[:2].count_nonzero() > 0
    assert torch.equal(values[2:], everything(shared("sgd"))["first.weight"][0][2:])
