import random
import re

import pytest

from archloom.reports.relaxed_cells import draw_relaxed, find_decisions
from archloom.spaces import NONE, SPACES, Architecture


def build(name):
    return SPACES[name].load()(**SPACES[name].settings)


def widths(svg):
    return [float(width) for width in re.findall(r'fill="none" stroke="#\w+" stroke-width="([\d.]+)"', svg)]


def test_the_width_of_an_edge_is_its_probability():
    space = build("nb201_mini")
    architecture = Architecture({"0->1": "nor_conv_3x3", "0->2": "skip_connect", "1->2": "nor_conv_3x3"})
    rows = {name: [0.1, 0.1, 0.1, 0.1, 0.6] for name in architecture}
    options = space.decisions[0].options
    for name, share in (("0->1", 1.0), ("0->2", 0.25), ("1->2", 0.0)):
        rows[name] = [0.0] * len(options)
        rows[name][options.index(architecture[name])] = share
    svg = draw_relaxed(space, architecture, rows)
    assert "nor_conv_3x3 100 %" in svg and "skip_connect 25 %" in svg and "nor_conv_3x3 0 %" in svg
    assert sorted(widths(svg)) == pytest.approx([0.6, 0.6 + 6.4 / 4, 7.0])


def test_an_edge_that_is_none_keeps_its_place_and_is_dotted():
    space = build("nb201_mini")
    architecture = Architecture({"0->1": NONE, "0->2": "skip_connect", "1->2": "nor_conv_3x3"})
    svg = draw_relaxed(space, architecture, {name: [0.2] * 5 for name in architecture})
    assert len(widths(svg)) == 3
    assert "none 20 %" in svg and 'stroke-dasharray="1 4"' in svg


def test_without_probabilities_lines_are_plain():
    space = build("nb201_mini")
    architecture = space.sample(random.Random(0))
    for rows in (
        None,
        {},
        {name: [-1.0, 2.0, 0, 0, 0] for name in architecture},
        {name: [0.5] for name in architecture},
    ):
        assert set(widths(draw_relaxed(space, architecture, rows))) == {1.8}


@pytest.mark.parametrize("name", ["nb201", "darts", "s2"])
def test_every_edge_of_a_cell_has_its_own_decision(name):
    space = build(name)
    architecture = space.sample(random.Random(1))
    graphs = space.graphs(architecture)
    names = [behind for graph in find_decisions(space, architecture, graphs) for behind in graph]
    assert names and all(len(behind) == 1 for behind in names)
    assert len(set(names)) == len(names)
    operations = [edge[2] for graph in graphs for edge in graph.edges]
    assert [architecture[behind[0]] for behind in names] == operations


def test_an_operation_of_several_decisions_has_the_product_of_their_probabilities():
    space = build("mobilenet_v3_like")
    architecture = space.sample(random.Random(0))
    rows = {decision.name: [0.5] * len(decision.options) for decision in space.decisions}
    graphs = space.graphs(architecture)
    names = [behind for graph in find_decisions(space, architecture, graphs) for behind in graph]
    assert max(map(len, names)) > 1
    shares = [
        int(share) for share in re.findall(r">mbconv[^<]* (\d+) %</text>", draw_relaxed(space, architecture, rows))
    ]
    counts = [len(behind) for behind in names]
    assert {round(100 * 0.5**count) for count in counts} >= set(shares) and shares
