"""Running statistics after recalibration are those that a calculation by hand gives."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from archloom.data.loader import Batch
from archloom.families import build_network
from archloom.searches.recalibration import recalibrate
from archloom.spaces import Nb201
from archloom.supernet import Only

SPACE = Nb201(nodes=3, cells_per_stage=1)
CELL = SPACE.parse("|nor_conv_3x3~0|+|skip_connect~0|avg_pool_3x3~1|")


def batches(count: int = 3) -> list[Batch]:
    generator = torch.Generator().manual_seed(0)
    images = (1 + 2 * torch.randn(6, 3, 8, 8, generator=generator) for _ in range(count))
    return [Batch(image, torch.zeros(6, dtype=torch.int64)) for image in images]


@pytest.fixture
def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build_network(SPACE, Only(CELL, affine=False), classes=4, colours=3, channels=4)


def normalizations(network: nn.Module) -> dict[str, nn.BatchNorm2d]:
    return {name: module for name, module in network.named_modules() if isinstance(module, nn.BatchNorm2d)}


def test_statistics_are_the_plain_mean_over_batches(network):
    seen: dict[str, list[torch.Tensor]] = {name: [] for name in normalizations(network)}
    hooks = [
        module.register_forward_pre_hook(lambda _, inputs, name=name: seen[name].append(inputs[0].detach().clone()))
        for name, module in normalizations(network).items()
    ]
    recalibrate(network, batches())
    for hook in hooks:
        hook.remove()
    assert len(seen) > 5
    for name, module in normalizations(network).items():
        means = torch.stack([values.mean(dim=(0, 2, 3)) for values in seen[name]])
        variances = torch.stack([values.var(dim=(0, 2, 3), unbiased=True) for values in seen[name]])
        assert means.shape[0] == 3
        torch.testing.assert_close(module.running_mean, means.mean(dim=0))
        torch.testing.assert_close(module.running_var, variances.mean(dim=0))


def test_earlier_statistics_leave_no_trace(network):
    recalibrate(network, [Batch(1000 * batch.images, batch.labels) for batch in batches(2)])
    recalibrate(network, batches())
    once = {name: module.running_var.clone() for name, module in normalizations(network).items()}
    for module in normalizations(network).values():
        module.running_mean.fill_(7.0)
    recalibrate(network, batches())
    assert all(torch.equal(module.running_var, once[name]) for name, module in normalizations(network).items())


def test_nothing_is_learned_and_single_images_can_be_classified(network):
    before = {name: parameter.clone() for name, parameter in network.named_parameters()}
    recalibrate(network, batches())
    assert all(torch.equal(parameter, before[name]) for name, parameter in network.named_parameters())
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not any(module.training for module in network.modules())
    images = batches()[0].images
    with torch.no_grad():
        alone = torch.cat([network(images[place : place + 1], {}) for place in range(len(images))])
        torch.testing.assert_close(network(images, {}), alone, rtol=1e-4, atol=1e-5)
