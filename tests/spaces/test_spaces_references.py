"""Reference architectures: what a user would take without a search."""

from __future__ import annotations

from typing import Any

import pytest

from archloom.spaces import SPACES, Darts, Nb201, SearchSpace, Widths
from archloom.spaces.published import PUBLISHED


def _space(name: str, **settings: Any) -> SearchSpace:
    entry = SPACES.find(name)
    space: SearchSpace = entry.load()(**{**entry.settings, **settings})
    return space


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        (3, "|nor_conv_3x3~0|+|skip_connect~0|nor_conv_3x3~1|"),
        (4, PUBLISHED["nb201_residual"][1]),
        (
            5,
            "|nor_conv_3x3~0|+|none~0|nor_conv_3x3~1|+|none~0|none~1|none~2|"
            "+|skip_connect~0|none~1|skip_connect~2|none~3|",
        ),
    ],
)
def test_the_resnet_block_has_two_convolutions_in_a_row_and_a_skip_over_both(nodes: int, text: str) -> None:
    space = Nb201(nodes=nodes)
    assert {name: space.format(one) for name, one in space.references().items()} == {"ResNet block": text}


def test_cells_without_room_or_operations_for_the_block_have_no_reference() -> None:
    assert Nb201(nodes=2).references() == {}
    assert Nb201(operations=("none", "skip_connect", "own_conv")).references() == {}
    assert Nb201(operations=("skip_connect", "nor_conv_3x3")).references() == {}  # four nodes need `none`
    assert set(Nb201(nodes=3, operations=("skip_connect", "nor_conv_3x3")).references()) == {"ResNet block"}


def test_the_darts_space_has_its_published_cells() -> None:
    references = Darts().references()
    assert list(references) == ["DARTS V2", "GDAS", "P-DARTS", "PC-DARTS"]
    assert references["DARTS V2"] == Darts().parse(PUBLISHED["darts_v2"][1])


def test_a_fixed_reduction_cell_takes_the_published_normal_cells() -> None:
    space = _space("darts_frc")
    whole = Darts().references()["GDAS"]
    assert dict(space.references()["GDAS"]) == {name: whole[name] for name in whole if name.startswith("normal")}


@pytest.mark.parametrize("name", ["s1", "s2", "nats_size"])
def test_spaces_that_no_published_cell_fits_have_none(name: str) -> None:
    assert _space(name).references() == {}
    assert Darts(nodes=3).references() == {}


def test_a_published_cell_with_a_missing_operation_is_left_out() -> None:
    operations = tuple(name for name in Darts().operations if name != "dil_conv_3x3")
    assert list(Darts(operations=operations).references()) == ["GDAS"]


def test_mobile_references_have_every_layer_kernel_3_expansion_6_and_base_widths() -> None:
    space = _space("proxylessnas_32")
    assert space.format(space.references()["MobileNetV2-like"]) == (
        "16:k3 | 16:k3 | 16:k3e6,k3e6,k3e6 | 32:k3e6,k3e6,k3e6 | 64:k3e6,k3e6,k3e6 | 128"
    )
    wide = _space("mobilenet_v3_like_32")
    assert wide.format(wide.references()["MobileNetV2-like"]) == (
        "16:k3 | 16:k3 | 16:k3e6,k3e6,k3e6 | 32:k3e6,k3e6,k3e6 | 64:k3e6,k3e6,k3e6 | 128 | 256"
    )
    few = _space("proxylessnas_32", kernels=(5, 7), expansions=(2, 4))
    assert few.format(few.references()["MobileNetV2-like"]).count("k5e4") == 9


def test_width_spaces_need_no_reference() -> None:
    assert Widths().references() == {}
