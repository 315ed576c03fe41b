"""The course of the learning rate, and which weights decay."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from archloom.core.errors import SettingError
from archloom.retrainings.optimization import OptimizerSettings


def test_the_cosine_is_that_of_torch() -> None:
    settings = OptimizerSettings(learning_rate=0.1, learning_rate_end=0.001, every_step=False)
    sgd = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(sgd, T_max=12, eta_min=0.001)
    for epoch in range(12):
        assert settings.rate_at(epoch + 0.9, epochs=12) == pytest.approx(reference.get_last_lr()[0])
        sgd.step()
        reference.step()


def test_it_falls_by_steps_or_by_epochs() -> None:
    by_step = OptimizerSettings(learning_rate=1.0)
    assert by_step.rate_at(0.5, epochs=1) == pytest.approx((1 + math.cos(math.pi / 2)) / 2)
    assert OptimizerSettings(learning_rate=1.0, every_step=False).rate_at(0.5, epochs=1) == 1.0


def test_linear_ends_at_nothing_after_a_warm_up_by_epochs() -> None:
    settings = OptimizerSettings(learning_rate=0.5, policy="linear", warmup_epochs=5, every_step=False)
    rates = [settings.rate_at(epoch, epochs=250) for epoch in range(250)]
    assert rates[:6] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.5])
    assert rates[-1] == pytest.approx(0.5 / 245)
    assert settings.rate_at(250, epochs=250) == 0


def test_exponential_is_a_factor_per_epoch() -> None:
    settings = OptimizerSettings(learning_rate=0.1, policy="exponential", factor=0.97, every_step=False)
    assert [settings.rate_at(e, epochs=250) for e in (0, 1, 2, 2.5)] == pytest.approx([0.1, 0.097, 0.09409, 0.09409])


def test_normalisations_and_biases_need_not_decay() -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    decay = {
        id(parameter): group["weight_decay"]
        for group in OptimizerSettings(weight_decay=0.1, decay_all=False).build_optimizer(network).param_groups
        for parameter in group["params"]
    }
    assert [decay[id(parameter)] for parameter in network.parameters()] == [0.1, 0.0, 0.0, 0.0]
    groups = OptimizerSettings(weight_decay=0.1).build_optimizer(network).param_groups
    assert [group["weight_decay"] for group in groups] == [0.1]


def test_all_broken_rules_are_told_at_once() -> None:
    with pytest.raises(SettingError) as caught:
        OptimizerSettings(learning_rate=0, momentum=1.0, factor=0, clip=-1)
    assert len(caught.value.problems) == 4
    with pytest.raises(SettingError, match=r"optimizer.nesterov must be false where momentum is 0"):
        OptimizerSettings(momentum=0, nesterov=True)
