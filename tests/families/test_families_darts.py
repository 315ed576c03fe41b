"""The network of the DARTS family: its layout, its published size, and room for anybody's own operation."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor, nn

from archloom.core.errors import SettingError
from archloom.families import build_network
from archloom.families.darts import DartsCell, DartsNetwork
from archloom.objectives import CostTable
from archloom.operations import DARTS_OPERATIONS, FactorizedReduce, FixedReduction, Place, ReluConvNorm
from archloom.spaces import SPACES, Architecture, Darts
from archloom.spaces.darts import CellSlot
from archloom.supernet import EveryOption, Only, inherit, path_gates

DARTS_V2 = (
    "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('sep_conv_3x3', 1), "
    "('sep_conv_3x3', 1), ('skip_connect', 0), ('skip_connect', 0), ('dil_conv_3x3', 2)], normal_concat=range(2, 6), "
    "reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2), ('max_pool_3x3', 1), "
    "('max_pool_3x3', 0), ('skip_connect', 2), ('skip_connect', 2), ('max_pool_3x3', 1)], reduce_concat=range(2, 6))"
)


def test_the_published_cell_has_its_published_size() -> None:
    """3,349,342 weights at 36 channels and 20 cells, the auxiliary head not counted; the paper rounds to 3.3 M."""
    space = Darts(cells=20)
    with torch.device("meta"):
        network = build_network(space, Only(space.parse(DARTS_V2)), classes=10, colours=3, channels=36)
    assert sum(parameter.numel() for parameter in network.parameters()) == 3_349_342


@pytest.mark.parametrize("size", [12, 9])
def test_width_doubles_and_size_halves_at_a_third_and_two_thirds(size: int) -> None:
    space = Darts(cells=6, nodes=3)
    network = build_network(space, EveryOption(), classes=7, colours=2, channels=4, stem_multiplier=2)
    assert isinstance(network, DartsNetwork)
    assert network.stem[0].weight.shape == (8, 2, 3, 3)
    shapes = []
    for cell in network.cells:
        cell.register_forward_hook(lambda module, inputs, output: shapes.append(tuple(output.shape[1:])))
    logits = network(torch.randn(2, 2, size, size), path_gates(space, space.sample(random.Random(0))))
    half, quarter = -(-size // 2), -(-size // 4)
    assert shapes == [
        *[(12, size, size)] * 2,
        *[(24, half, half)] * 2,
        *[(48, quarter, quarter)] * 2,
    ]
    assert logits.shape == (2, 7)


def test_only_the_first_input_of_a_cell_after_a_reduction_is_halved() -> None:
    network = build_network(Darts(cells=6, nodes=1), EveryOption(), classes=7, colours=2, channels=4)
    kinds = [type(cell.first) for cell in network.cells]
    after_reduction = {3, 5}
    assert kinds == [FactorizedReduce if position in after_reduction else ReluConvNorm for position in range(6)]
    assert all(type(cell.second) is ReluConvNorm for cell in network.cells)


def test_a_cell_reads_the_two_cells_before_it() -> None:
    network = build_network(Darts(cells=3, nodes=1), EveryOption(), classes=3, colours=3, channels=4)
    seen: list[tuple[Tensor, Tensor, Tensor]] = []
    for cell in network.cells:
        cell.register_forward_hook(lambda module, inputs, output: seen.append((inputs[0], inputs[1], output)))
    space = Darts(cells=3, nodes=1)
    network(torch.randn(2, 3, 8, 8), path_gates(space, space.sample(random.Random(0))))
    first, second, third = seen
    assert first[0] is first[1]  # the stem stands for both
    assert second[0] is first[1]
    assert second[1] is first[2]
    assert third[0] is first[2]
    assert third[1] is second[2]


def bare_cell(space: Darts, choices: dict[str, str], *, reduction: bool = False) -> DartsCell:
    slot = CellSlot("reduce" if reduction else "normal", reduction)
    resolve = Only(Architecture({**dict.fromkeys((d.name for d in space.decisions), "none"), **choices}))
    return DartsCell(space, slot, (4, 4), 4, resolve, reduced_before=False).double()


def test_a_cell_concatenates_its_nodes_in_order_and_leaves_its_inputs_out() -> None:
    space = Darts(nodes=3)
    cell = bare_cell(
        space,
        {
            "normal/0->2": "skip_connect",
            "normal/1->3": "skip_connect",
            "normal/2->4": "skip_connect",
            "normal/1->4": "skip_connect",
        },
    )
    x, y = torch.randn(2, 3, 4, 6, 6, dtype=torch.float64)
    first, second = cell.first(x), cell.second(y)
    torch.testing.assert_close(cell(x, y, None), torch.cat([first, second, first + second], dim=1))
    assert cell.channels_out == 12


@pytest.mark.parametrize(("size", "halved"), [(12, 6), (9, 5)])
def test_in_a_reduction_cell_only_edges_from_the_inputs_halve(size: int, halved: int) -> None:
    space = Darts(nodes=2)
    cell = bare_cell(space, {"reduce/0->2": "max_pool_3x3", "reduce/2->3": "skip_connect"}, reduction=True)
    assert cell.dag is not None
    x, y = torch.randn(2, 3, 4, size, size, dtype=torch.float64)
    result = cell(x, y, None)
    assert result.shape == (3, 8, halved, halved)
    torch.testing.assert_close(result[:, :4], result[:, 4:])  # the second node takes the first as it is
    pooled = nn.functional.max_pool2d(cell.first(x), 3, 2, 1)
    torch.testing.assert_close(result[:, :4], nn.functional.batch_norm(pooled, None, None, training=True))


def test_a_node_that_reads_nothing_is_zero_of_the_reduced_size() -> None:
    cell = bare_cell(Darts(nodes=2), {"reduce/0->2": "sep_conv_3x3"}, reduction=True)
    x, y = torch.randn(2, 3, 4, 9, 9, dtype=torch.float64)
    result = cell(x, y, None)
    assert result[:, :4].abs().max() > 0
    assert torch.equal(result[:, 4:], torch.zeros(3, 4, 5, 5, dtype=torch.float64))


def test_a_fixed_reduction_cell_takes_the_place_of_the_searched_one() -> None:
    space = Darts(**SPACES["darts_frc"].settings)
    network = build_network(space, EveryOption(), classes=3, colours=3, channels=4)
    fixed = [position for position, cell in enumerate(network.cells) if isinstance(cell.fixed, FixedReduction)]
    assert fixed == [position for position, slot in enumerate(space.slots) if slot.reduction] == [2, 5]
    assert [position for position, cell in enumerate(network.cells) if cell.dag is None] == fixed
    assert network.cells[2].channels_out == 4 * 8


def test_the_fixed_cell_gives_four_parts_whatever_the_number_of_nodes() -> None:
    space = Darts(nodes=2, reduction="fixed", cells_per_block=1)
    network = build_network(space, EveryOption(), classes=3, colours=3, channels=4)
    assert [cell.channels_out for cell in network.cells] == [8, 32, 16, 64, 32]
    logits = network(torch.randn(2, 3, 8, 8), path_gates(space, space.sample(random.Random(0))))
    assert logits.shape == (2, 3)


def test_settings_below_one_are_all_named_at_once() -> None:
    with pytest.raises(SettingError) as caught:
        build_network(Darts(), EveryOption(), classes=3, colours=3, channels=0, stem_multiplier=-1)
    assert caught.value.problems == (
        "network.channels must lie in 1..65536, got 0",
        "network.stem_multiplier must be at least 1, got -1",
    )


# --- operations of one's own


def my_op(place: Place) -> nn.Module:
    return nn.Conv2d(place.channels_in, place.channels_out, 3, place.stride, 1, bias=False)


def test_an_operation_added_to_the_table_runs_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DARTS_OPERATIONS, "my_op", my_op)
    space = Darts(cells=3, nodes=1, operations=("skip_connect", "my_op"), edges="fixed")
    everywhere = Architecture({decision.name: "my_op" for decision in space.decisions})
    supernet = build_network(space, EveryOption(), classes=3, colours=3, channels=4)
    alone = build_network(space, Only(everywhere), classes=3, colours=3, channels=4)
    inherit(alone, supernet)
    x = torch.randn(2, 3, 9, 9)
    torch.testing.assert_close(alone(x), supernet(x, path_gates(space, everywhere)))
    table = CostTable(space, classes=3, image_shape=(3, 8, 8), channels=4)
    other = everywhere.with_option("normal/0->2", "skip_connect")  # in the one normal cell, at full size
    assert table.cost(everywhere).parameters - table.cost(other).parameters == 9 * 4 * 4
    assert table.cost(everywhere).multiply_adds - table.cost(other).multiply_adds == 9 * 4 * 4 * 64


def test_an_operation_that_is_in_no_table_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingError, match=r"^unknown operation 'dil_conv_3x'; did you mean 'dil_conv_3x3'\?$"):
        build_network(Darts(operations=("dil_conv_3x",)), EveryOption(), classes=3, colours=3)
