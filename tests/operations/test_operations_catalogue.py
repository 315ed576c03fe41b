"""What every operation of both tables must do: fit its place, and leave its input alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from archloom.operations import DARTS_OPERATIONS, NB201_OPERATIONS, FactorizedReduce, Place, make_operation
from archloom.operations.place import Make
from archloom.spaces import NONE
from archloom.spaces.darts import OPERATIONS as DARTS_NAMES
from archloom.spaces.nb201 import OPERATIONS as NB201_NAMES

ALL = [(table, name) for table in (NB201_OPERATIONS, DARTS_OPERATIONS) for name in table]


def batch_norm(channels: int, *, scaled: bool = True) -> nn.Module:
    return nn.BatchNorm2d(channels, affine=scaled)


def test_every_option_of_a_space_but_none_has_an_operation() -> None:
    assert set(NB201_OPERATIONS) == set(NB201_NAMES) - {NONE}
    assert set(DARTS_OPERATIONS) == set(DARTS_NAMES) - {NONE}


@pytest.mark.parametrize("size", [12, 9])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("table", "name"), ALL)
def test_an_operation_divides_the_size_by_its_stride_and_does_not_write_to_its_input(
    table: dict[str, Make], name: str, stride: int, size: int
) -> None:
    x = torch.randn(2, 4, size, size)
    before = x.clone()
    result = make_operation(table, name, Place(4, 4, stride, batch_norm))(x)
    assert result.shape == (2, 4, -(-size // stride), -(-size // stride))
    assert torch.equal(x, before)


def test_a_skip_is_the_identity_unless_the_resolution_halves() -> None:
    x = torch.randn(2, 4, 6, 6)
    assert torch.equal(NB201_OPERATIONS["skip_connect"](Place(4, 4, 1, batch_norm))(x), x)
    assert isinstance(DARTS_OPERATIONS["skip_connect"](Place(4, 4, 2, batch_norm)), FactorizedReduce)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("max_pool_3x3", 0),
        ("avg_pool_3x3", 0),
        ("skip_connect", 0),
        ("sep_conv_3x3", 2 * (8 * 9 + 8 * 8 + 2 * 8)),
        ("sep_conv_5x5", 2 * (8 * 25 + 8 * 8 + 2 * 8)),
        ("dil_conv_3x3", 8 * 9 + 8 * 8 + 2 * 8),
        ("dil_conv_5x5", 8 * 25 + 8 * 8 + 2 * 8),
    ],
)
def test_darts_operations_have_as_many_weights_as_their_formula_says(name: str, parameters: int) -> None:
    module = make_operation(DARTS_OPERATIONS, name, Place(8, 8, 1, batch_norm))
    assert sum(parameter.numel() for parameter in module.parameters()) == parameters


def test_only_the_pool_of_the_darts_table_is_normalized() -> None:
    place = Place(4, 4, 1, batch_norm)
    kinds = [
        [type(module) for module in table["avg_pool_3x3"](place).modules() if isinstance(module, nn.BatchNorm2d)]
        for table in (DARTS_OPERATIONS, NB201_OPERATIONS)
    ]
    assert kinds == [[nn.BatchNorm2d], []]
