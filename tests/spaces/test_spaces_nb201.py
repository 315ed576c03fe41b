"""The NB201 space: its size, its text form, its graph, and which cells count as the same."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from archloom.core.errors import ParseError, SettingError
from archloom.spaces import NONE, Architecture, Nb201

SPACE = Nb201()
EXAMPLE = "|avg_pool_3x3~0|+|nor_conv_1x1~0|skip_connect~1|+|nor_conv_1x1~0|none~1|skip_connect~2|"


def test_there_are_15625_cells_of_four_nodes_and_125_of_three() -> None:
    assert SPACE.cardinality == 15_625
    assert Nb201(nodes=3).cardinality == 125
    assert Nb201(operations=("skip_connect", "nor_conv_3x3")).cardinality == 2**6


def test_decisions_follow_the_order_of_the_text() -> None:
    assert [decision.name for decision in SPACE.decisions] == ["0->1", "0->2", "1->2", "0->3", "1->3", "2->3"]


def test_enumerating_gives_every_cell_once_with_the_last_edge_changing_fastest() -> None:
    cells = list(Nb201(nodes=3).enumerate())
    assert len(set(cells)) == len(cells) == 125
    assert cells[0] == Architecture(dict.fromkeys(["0->1", "0->2", "1->2"], NONE))
    assert cells[1] == cells[0].with_option("1->2", "skip_connect")
    assert cells[5] == cells[0].with_option("0->2", "skip_connect")


def test_parse_reads_every_edge() -> None:
    assert SPACE.parse(EXAMPLE) == Architecture(
        {
            "0->1": "avg_pool_3x3",
            "0->2": "nor_conv_1x1",
            "1->2": "skip_connect",
            "0->3": "nor_conv_1x1",
            "1->3": "none",
            "2->3": "skip_connect",
        }
    )
    assert SPACE.format(SPACE.parse(f"  {EXAMPLE}\n")) == EXAMPLE


GROUP_2 = "group 2 of an NB201 string reads |OPERATION~0|OPERATION~1|, got "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an NB201 string of this space has 3 groups joined by '+', got ''"),
        ("|none~0|", "an NB201 string of this space has 3 groups joined by '+', got '|none~0|'"),
        ("|none~0|+|none~0|+|x|", GROUP_2 + "'|none~0|'"),
        ("|none~0|+|none~0|none~0|+|x|", GROUP_2 + "'|none~0|none~0|'"),
        ("|none~0|+|none~1|none~0|+|x|", GROUP_2 + "'|none~1|none~0|'"),
        ("|none~0|+|none~00|none~1|+|x|", GROUP_2 + "'|none~00|none~1|'"),
        ("|none~0|+|no\0ne~0|none~1|+|x|", GROUP_2 + "'|no\\x00ne~0|none~1|'"),
        ("|none~0|+|no\nne~0|none~1|+|x|", GROUP_2 + "'|no\\nne~0|none~1|'"),
        (EXAMPLE.replace("avg", "max"), "decision '0->1' has no option 'max_pool_3x3'; did you mean 'avg_pool_3x3'?"),
    ],
)
def test_a_text_that_is_no_cell_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        SPACE.parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["|none~" + "0" * 5000 + "|+|x|+|x|", "|" * 1_000_000, "+" * 1_000_000])
def test_an_oversized_text_is_refused_in_a_short_line(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        SPACE.parse(text)
    assert len(str(caught.value)) < 400


def test_mutation_changes_exactly_one_edge() -> None:
    rng = random.Random(0)
    changed = set()
    for _ in range(300):
        parent = SPACE.sample(rng)
        child = SPACE.mutate(parent, rng)
        differing = [name for name in parent if parent[name] != child[name]]
        assert len(differing) == 1
        changed.add((differing[0], child[differing[0]]))
    assert len(changed) == 30  # every edge was given every operation


def test_the_graph_lists_connected_edges_only() -> None:
    (graph,) = SPACE.graphs(SPACE.parse(EXAMPLE))
    assert graph.nodes == 4
    assert graph.outputs == (3,)
    assert graph.edges == (
        (0, 1, "avg_pool_3x3"),
        (0, 2, "nor_conv_1x1"),
        (1, 2, "skip_connect"),
        (0, 3, "nor_conv_1x1"),
        (2, 3, "skip_connect"),
    )


def test_settings_that_break_a_rule_are_all_reported() -> None:
    with pytest.raises(SettingError) as caught:
        Nb201(nodes=1, cells_per_stage=0, operations=("none", "none"))
    assert caught.value.problems == (
        "space.nodes must lie in 2..64, got 1",
        "space.cells_per_stage must lie in 1..1000, got 0",
        "space.operations must be distinct names, got ['none', 'none']",
    )


def test_operations_given_as_a_list_make_an_equal_hashable_space() -> None:
    listed = Nb201(operations=list(SPACE.operations))  # type: ignore[arg-type]
    assert listed == SPACE
    assert hash(listed) == hash(SPACE)


# --- which cells are the same


def test_cells_that_differ_in_the_order_of_a_sum_are_isomorphic() -> None:
    space = Nb201(nodes=3)
    skipped = space.parse("|skip_connect~0|+|nor_conv_1x1~0|nor_conv_3x3~1|")
    swapped = space.parse("|skip_connect~0|+|nor_conv_3x3~0|nor_conv_1x1~1|")
    other = space.parse("|nor_conv_1x1~0|+|nor_conv_3x3~0|nor_conv_1x1~1|")
    assert space.canonical(skipped) == space.canonical(swapped) != space.canonical(other)


def test_there_are_6466_classes() -> None:
    assert len({SPACE.canonical(cell) for cell in SPACE.enumerate()}) == 6466


def test_the_classes_are_those_of_the_published_table(nb201_dir: Path) -> None:
    texts = np.load(nb201_dir / "nasbench201_compact.npz", allow_pickle=False)["arch"]
    published = np.load(nb201_dir / "nasbench201_isomorph.npz", allow_pickle=False)["isomorph"]
    ours = [SPACE.canonical(SPACE.parse(str(text))) for text in texts]
    pairs = set(zip(ours, published.tolist(), strict=True))
    assert len(texts) == 15_625
    assert len(pairs) == len(set(ours)) == len(set(published.tolist())) == 6466  # one-to-one: the same partition
