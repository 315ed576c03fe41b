"""Families: what is known of a kind of network, asked of its space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
from torch import nn

from archloom.core.errors import SettingError
from archloom.families import FAMILIES, OperationKind, family_of
from archloom.families.base import NetworkFamily, Size
from archloom.families.darts import DartsFamily
from archloom.spaces import SPACES, Darts, Mobile, Nb201, SearchSpace, Widths


class OwnNetwork(nn.Module):
    """Stands for the network of a plug-in."""


@dataclass(frozen=True, kw_only=True)
class OwnSpace(Nb201):
    """Derived from a space of the package, with another network."""

    network: ClassVar[str] = f"{__name__}:OwnNetwork"


class OwnFamily(DartsFamily):
    """Stands for the family of a plug-in."""


@dataclass(frozen=True, kw_only=True)
class OwnFamilySpace(Darts):
    """Names a family by its import path."""

    family: ClassVar[str] = f"{__name__}:OwnFamily"


def build(name: str) -> SearchSpace:
    entry = SPACES[name]
    space: SearchSpace = entry.load()(**entry.settings)
    return space


@pytest.mark.parametrize("name", SPACES)
def test_every_space_has_a_family_of_the_catalogue(name: str) -> None:
    family = family_of(build(name))
    assert family.name in FAMILIES
    assert isinstance(family, FAMILIES[family.name].load())
    assert family_of(type(build(name))) is family


def test_a_space_with_a_network_alone_gets_a_plain_family() -> None:
    family = family_of(OwnSpace())
    assert isinstance(family, NetworkFamily) and family.network is OwnNetwork
    assert family.name == __name__.rpartition(".")[2]
    assert family.sizes_of(OwnSpace()) == [Size()]
    assert family.at_full_depth(OwnSpace(cells_per_stage=1)) == OwnSpace(cells_per_stage=1)


def test_a_space_may_name_a_family_by_its_import_path() -> None:
    assert type(family_of(OwnFamilySpace())) is OwnFamily


def test_a_space_without_family_and_network_is_refused() -> None:
    with pytest.raises(SettingError, match="SearchSpace must name its family"):
        family_of(SearchSpace)


def test_full_depth_is_that_of_retrained_networks() -> None:
    def deep(space: SearchSpace) -> SearchSpace:
        return family_of(space).at_full_depth(space)  # type: ignore[no-any-return]

    assert deep(Nb201(cells_per_stage=1)) == Nb201(cells_per_stage=5)
    assert deep(Nb201(cells_per_stage=7)) == Nb201(cells_per_stage=7)
    assert deep(Darts(cells=8)) == Darts(cells=20)
    assert deep(Darts(cells_per_block=2)) == Darts(cells_per_block=6)
    unshared = Darts(cells=4, sharing="none")
    for fixed in (unshared, Mobile(), Widths()):
        assert deep(fixed) == fixed
    for space in (Nb201(cells_per_stage=1), Darts(cells=3, nodes=2), unshared):
        assert [d.name for d in space.decisions] == [d.name for d in deep(space).decisions]


def test_depth_is_set_by_the_setting_in_force() -> None:
    assert family_of(Nb201).with_depth(Nb201(), 2) == Nb201(cells_per_stage=2)
    assert family_of(Darts).with_depth(Darts(), 11) == Darts(cells=11)
    assert family_of(Darts).with_depth(Darts(cells_per_block=2), 4) == Darts(cells_per_block=4)
    for fixed in (Mobile(), Widths(), Darts(sharing="none")):
        with pytest.raises(SettingError, match=f"the depth of {type(fixed).__name__} must stay as it is"):
            family_of(fixed).with_depth(fixed, 3)


def test_sizes_of_a_fixed_depth_change_the_width_alone() -> None:
    shared, own = Darts(), Darts(sharing="none")
    sizes = family_of(own).sizes_of(own)
    assert all(not size.space for size in sizes)
    assert [size.network for size in sizes] == [size.network for size in family_of(shared).sizes_of(shared)]


def test_a_recipe_cannot_change_a_fixed_depth() -> None:
    wanted = {"cells": 8, "cells_per_block": 0, "nodes": 3}
    family = family_of(Darts)
    assert family.select_space_settings(Darts(), wanted) == wanted
    assert family.select_space_settings(Darts(sharing="none"), wanted) == {"nodes": 3}


@pytest.mark.parametrize(
    ("family", "option", "kind"),
    [
        ("nb201", "none", OperationKind.NONE),
        ("nb201", "skip_connect", OperationKind.SKIP),
        ("nb201", "avg_pool_3x3", OperationKind.POOL),
        ("nb201", "nor_conv_3x3", OperationKind.CONVOLUTION),
        ("darts", "max_pool_3x3", OperationKind.POOL),
        ("darts", "dil_conv_5x5", OperationKind.CONVOLUTION),
        ("mobile", "zero", OperationKind.NONE),
        ("mobile", "skip_connect", OperationKind.SKIP),
        ("mobile", "mbconv_3x3 e6 se", OperationKind.CONVOLUTION),
        ("widths", "64", OperationKind.CONVOLUTION),
    ],
)
def test_options_have_a_kind(family: str, option: str, kind: OperationKind) -> None:
    assert FAMILIES[family].load()().kind_of(option) is kind
