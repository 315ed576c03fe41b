"""What candidates are taken for. A wrong guess here would compute something else than the module does."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from archloom.fast import Geometry
from archloom.fast.branches import Dense, Opaque, Pool, Separable, Skip, branch_of
from archloom.operations import DARTS_OPERATIONS, NB201_OPERATIONS, Place
from archloom.supernet import EveryOption, Only

NORM = EveryOption().normalize
BATCH_NORM = nn.BatchNorm2d(4, affine=False, track_running_stats=False)


def place(stride: int = 1) -> Place:
    return Place(4, 4, stride, NORM)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("skip_connect", Skip()),
        ("avg_pool_3x3", Pool("average", 1, normalized=False)),
    ],
)
def test_the_weightless_operations_of_nb201(option: str, expected: object) -> None:
    assert branch_of(NB201_OPERATIONS[option](place())) == expected


@pytest.mark.parametrize("stride", [1, 2])
def test_the_pools_of_darts_are_normalised(stride: int) -> None:
    assert branch_of(DARTS_OPERATIONS["max_pool_3x3"](place(stride))) == Pool("max", stride, normalized=True)
    assert branch_of(DARTS_OPERATIONS["avg_pool_3x3"](place(stride))) == Pool("average", stride, normalized=True)


@pytest.mark.parametrize("option", ["nor_conv_1x1", "nor_conv_3x3"])
def test_convolutions_are_dense(option: str) -> None:
    module = NB201_OPERATIONS[option](place())
    branch = branch_of(module)
    assert isinstance(branch, Dense)
    assert branch.convolution is module[1]


@pytest.mark.parametrize(
    ("option", "stages", "dilation"),
    [("sep_conv_3x3", 2, 1), ("sep_conv_5x5", 2, 1), ("dil_conv_3x3", 1, 2), ("dil_conv_5x5", 1, 2)],
)
@pytest.mark.parametrize("stride", [1, 2])
def test_separable_convolutions_and_their_geometry(option: str, stages: int, dilation: int, stride: int) -> None:
    branch = branch_of(DARTS_OPERATIONS[option](place(stride)))
    assert isinstance(branch, Separable)
    assert len(branch.depthwise) == len(branch.pointwise) == stages
    assert branch.geometry(0) == Geometry(stride, dilation)
    if stages == 2:
        assert branch.geometry(1) == Geometry(1, dilation)


class Doubling(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


def convolution(**options: object) -> nn.Conv2d:
    return nn.Conv2d(4, 4, **{"kernel_size": 3, "padding": 1, "bias": False, **options})


def separable(depthwise: nn.Module, pointwise: nn.Module | None = None, norm: nn.Module = BATCH_NORM) -> nn.Module:
    return nn.Sequential(nn.ReLU(), depthwise, pointwise or nn.Conv2d(4, 4, 1, bias=False), norm)


@pytest.mark.parametrize(
    "module",
    [
        Doubling(nn.ReLU(), convolution(), BATCH_NORM),
        nn.Sequential(nn.ReLU(), convolution(bias=True), BATCH_NORM),
        nn.Sequential(nn.ReLU(), convolution(groups=2), BATCH_NORM),
        nn.Sequential(nn.ReLU(), convolution(padding_mode="circular"), BATCH_NORM),
        nn.Sequential(nn.ReLU(), convolution(padding="same"), BATCH_NORM),
        nn.Sequential(nn.ELU(), convolution(), BATCH_NORM),
        nn.Sequential(nn.ReLU(), convolution(), nn.BatchNorm2d(4)),
        nn.Sequential(nn.ReLU(), convolution(), nn.BatchNorm2d(4, affine=False)),
        nn.Sequential(nn.ReLU(), convolution(), nn.BatchNorm2d(4, eps=1e-3, affine=False, track_running_stats=False)),
        nn.Sequential(nn.ReLU(), convolution()),
        nn.AvgPool2d(3, 1, padding=1),
        nn.AvgPool2d(3, 1, padding=1, count_include_pad=False, divisor_override=5),
        nn.AvgPool2d(2, 2, count_include_pad=False),
        nn.MaxPool2d(3, 1, padding=1, dilation=2),
        nn.MaxPool2d(3, 3, padding=1),
        nn.Sequential(nn.MaxPool2d(3, 1, padding=1), nn.ReLU()),
        separable(convolution(groups=4), nn.Conv2d(4, 4, 1)),
        separable(convolution(groups=4), nn.Conv2d(4, 4, 1, bias=False, groups=2)),
        separable(convolution(groups=4, padding=0)),
        separable(convolution(groups=4, stride=(1, 2))),
        separable(convolution(groups=4, kernel_size=(3, 1), padding=(1, 0))),
        separable(nn.ReLU()),
        separable(convolution(groups=4), norm=nn.BatchNorm2d(4)),
        nn.Sequential(separable(convolution(groups=4)), separable(convolution(groups=4, stride=2))),
        nn.Sequential(*(separable(convolution(groups=4)) for _ in range(3))),
    ],
    ids=str,
)
def test_what_differs_in_anything_runs_by_itself(module: nn.Module) -> None:
    assert isinstance(branch_of(module), Opaque)


def test_a_network_to_be_trained_by_itself_keeps_its_scales_and_so_its_modules() -> None:
    standalone = Only.__new__(Only)
    object.__setattr__(standalone, "affine", True)
    object.__setattr__(standalone, "running_statistics", True)
    module = NB201_OPERATIONS["nor_conv_3x3"](Place(4, 4, 1, standalone.normalize))
    assert isinstance(branch_of(module), Opaque)
