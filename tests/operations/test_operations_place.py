"""Operations are found by name, and built for the place they are put in."""

from __future__ import annotations

import dataclasses

import pytest
from torch import nn

from archloom.core.errors import SettingError
from archloom.operations import DARTS_OPERATIONS, NB201_OPERATIONS, Place, ReluConvNorm, make_operation


def plain(channels: int, *, scaled: bool = True) -> nn.Module:
    return nn.BatchNorm2d(channels, affine=scaled)


PLACE = Place(4, 6, 2, plain)


def test_the_named_operation_fits_its_place() -> None:
    module = make_operation(NB201_OPERATIONS, "nor_conv_3x3", PLACE)
    assert isinstance(module, ReluConvNorm)
    convolution = module[1]
    assert isinstance(convolution, nn.Conv2d)
    assert (convolution.in_channels, convolution.out_channels) == (4, 6)
    assert (convolution.kernel_size, convolution.stride, convolution.padding) == ((3, 3), (2, 2), (1, 1))


def test_a_misspelt_operation_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(SettingError, match=r"^unknown operation 'sep_conv_3x4'; did you mean 'sep_conv_3x3'\?$"):
        make_operation(DARTS_OPERATIONS, "sep_conv_3x4", PLACE)


def test_a_name_near_nothing_is_answered_with_all_there_is() -> None:
    wanted = r"^unknown operation 'x'; known: avg_pool_3x3, nor_conv_1x1, nor_conv_3x3, skip_connect$"
    with pytest.raises(SettingError, match=wanted):
        make_operation(NB201_OPERATIONS, "x", PLACE)


def test_a_place_is_a_frozen_value() -> None:
    assert Place(4, 6, 2, plain) == PLACE
    with pytest.raises(dataclasses.FrozenInstanceError):
        PLACE.stride = 1  # type: ignore[misc]
