"""Cells as pictures and as text."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ElementTree

import pytest

from archloom.reports.cells import KIND_COLOURS, OPERATION_KINDS, OTHER, draw_cells, draw_text, kind_of
from archloom.spaces import SPACES, CellGraph, Darts, Nb201

SVG = "{http://www.w3.org/2000/svg}"
FULL = "|nor_conv_3x3~0|+|nor_conv_3x3~0|skip_connect~1|+|skip_connect~0|nor_conv_1x1~1|avg_pool_3x3~2|"


def texts(svg: str) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("name", SPACES)
def test_every_operation_of_every_space_is_labelled(name: str) -> None:
    entry = SPACES.find(name)
    space = entry.load()(**entry.settings)
    for seed in range(1 if name == "s2" else 3):  # twenty cells are many
        graphs = space.graphs(space.sample(random.Random(seed)))
        shown = texts(draw_cells(graphs))
        wanted = [operation for graph in graphs for _, _, operation in graph.edges]
        for operation in set(wanted):
            assert shown.count(operation) == wanted.count(operation)
        assert all(graph.name in shown for graph in graphs)


def test_nb201_ends_in_an_output_and_darts_in_a_concatenation() -> None:
    nb201, darts = Nb201(), Darts()
    assert {"input", "1", "2", "output"} <= set(texts(draw_cells(nb201.graphs(nb201.parse(FULL)))))
    shown = texts(draw_cells(darts.graphs(darts.sample(random.Random(0)))))
    assert shown.count("concat") == 2
    assert "concatenated" in shown


def test_a_subscript_is_drawn_as_one() -> None:
    space = Darts()
    svg = draw_cells(space.graphs(space.sample(random.Random(0))))
    lowered = [element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}tspan")]
    assert lowered == ["k-2", "k-1"] * 2
    assert "_{" not in svg


def test_the_legend_names_the_kinds_that_occur_and_no_others() -> None:
    space = Nb201()
    shown = texts(draw_cells(space.graphs(space.parse(FULL))))
    assert {"convolution", "pooling", "skip"} <= set(shown)
    assert not {"separable convolution", "dilated convolution", OTHER} & set(shown)
    assert not any("faded" in text for text in shown)


def test_states_on_no_path_are_faded() -> None:
    space = Nb201()
    idle = space.parse("|nor_conv_3x3~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|none~2|")
    svg = draw_cells(space.graphs(idle))
    assert any("faded" in text for text in texts(svg))
    assert svg.count('<g opacity="0.35">') == 2


def test_an_empty_cell_is_drawn() -> None:
    shown = texts(draw_cells([CellGraph("void", ("input",), 3, (), (2,))]))
    assert {"void", "input", "1", "output"} <= set(shown)


def test_no_cells_at_all_make_a_valid_picture() -> None:
    assert texts(draw_cells([], title="nothing")) == ["nothing"]


def test_hostile_names_are_escaped() -> None:
    evil = '<script>alert("1")</script>\x00&'
    graph = CellGraph(evil, (evil,), 2, ((0, 1, evil),), (1,))
    svg = draw_cells([graph], title=evil)
    assert "<script" not in svg
    assert ElementTree.fromstring(svg).find(f"{SVG}title").text == evil.replace("\x00", "\ufffd")


def test_a_long_name_is_shortened_and_kept_as_a_tooltip() -> None:
    name = "conv_" * 20
    root = ElementTree.fromstring(draw_cells([CellGraph("cell", ("input",), 2, ((0, 1, name),), (1,))]))
    assert name in [element.text for element in root.iter(f"{SVG}title")]
    assert name not in ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]


def test_a_title_is_drawn() -> None:
    space = Nb201()
    assert texts(draw_cells(space.graphs(space.parse(FULL)), title="My cell"))[0] == "My cell"


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("nor_conv_3x3", "convolution"),
        ("sep_conv_5x5", "separable convolution"),
        ("dil_conv_3x3", "dilated convolution"),
        ("avg_pool_3x3", "pooling"),
        ("skip_connect", "skip"),
        ("identity", "skip"),
        ("attention", OTHER),
    ],
)
def test_kinds_are_told_from_names(operation: str, kind: str) -> None:
    assert kind_of(operation) == kind


def test_every_kind_has_a_colour_of_its_own() -> None:
    assert {*OPERATION_KINDS.values(), OTHER} == set(KIND_COLOURS)
    assert len(set(KIND_COLOURS.values())) == len(KIND_COLOURS)


def test_text_of_an_nb201_cell() -> None:
    space = Nb201()
    assert draw_text(space.graphs(space.parse(FULL))[0]).splitlines() == [
        "cell:",
        "  node 1 = nor_conv_3x3(input)",
        "  node 2 = nor_conv_3x3(input) + skip_connect(node 1)",
        "  node 3 = skip_connect(input) + nor_conv_1x1(node 1) + avg_pool_3x3(node 2)",
        "  output = node 3",
    ]


def test_text_of_a_cell_with_subscripts_gaps_and_several_outputs() -> None:
    graph = CellGraph("normal", ("c_{k-2}", "c_{k-1}"), 4, ((1, 2, "skip_connect"),), (2, 3))
    assert draw_text(graph).splitlines() == [
        "normal:",
        "  node 2 = skip_connect(c[k-1])",
        "  node 3 = 0 (nothing connected)",
        "  output = concat(node 2, node 3)",
    ]
