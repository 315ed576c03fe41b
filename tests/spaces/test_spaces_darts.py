"""The DARTS space and those derived from it: sizes, layouts, decoding by hand, genotypes."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import pairwise

import pytest

from archloom.core.errors import ParseError, SettingError
from archloom.spaces import NONE, Architecture, Darts

SPACE = Darts()
SMALL = Darts(nodes=2, operations=(NONE, "skip_connect", "sep_conv_3x3"), cells=1)  # one cell, edges 01|2 and 012|3
NO_NONE = Darts(nodes=2, operations=("skip_connect", "sep_conv_3x3"), cells=1)

PUBLISHED = (  # DARTS, second order (Liu et al., 2019)
    "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('sep_conv_3x3', 1), "
    "('sep_conv_3x3', 1), ('skip_connect', 0), ('skip_connect', 0), ('dil_conv_3x3', 2)], normal_concat=[2, 3, 4, 5], "
    "reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2), ('max_pool_3x3', 1), ('max_pool_3x3', 0), "
    "('skip_connect', 2), ('skip_connect', 2), ('max_pool_3x3', 1)], reduce_concat=[2, 3, 4, 5])"
)


def kept(architecture: Architecture) -> dict[str, str]:
    return {name: option for name, option in architecture.items() if option != NONE}


# --- size and layout


def test_the_cell_has_180_times_7_to_the_8_wirings() -> None:
    assert SPACE.cardinality == (180 * 7**8) ** 2
    assert Darts(reduction="fixed").cardinality == 180 * 7**8


def test_cardinality_counts_what_can_be_sampled() -> None:
    rng = random.Random(0)
    assert NO_NONE.cardinality == 4 * 12
    assert len({NO_NONE.sample(rng) for _ in range(2000)}) == 48


def reductions(space: Darts) -> list[int]:
    return [position for position, slot in enumerate(space.slots) if slot.reduction]


def test_twenty_cells_reduce_at_6_and_13() -> None:
    assert reductions(Darts(cells=20)) == [6, 13]
    assert len(Darts(cells=20).slots) == 20


def test_two_cells_per_block_are_eight_cells() -> None:
    assert Darts(cells_per_block=2).slots == Darts(cells=8).slots
    assert reductions(Darts(cells=8)) == [2, 5]


def test_blocks_of_six_are_the_twenty_cells_of_gdas() -> None:
    assert Darts(cells_per_block=6).slots == Darts(cells=20).slots


@pytest.mark.parametrize("cells", [1, 2])
def test_fewer_than_three_cells_do_not_reduce(cells: int) -> None:
    space = Darts(cells=cells)
    assert reductions(space) == []
    assert space.cell_names == ("normal",)


def test_a_fixed_reduction_cell_makes_no_decisions() -> None:
    space = Darts(reduction="fixed")
    assert space.cell_names == ("normal",)
    assert [slot.fixed for slot in space.slots] == [slot.reduction for slot in space.slots]


def test_cells_that_share_nothing_have_names_of_their_own() -> None:
    space = Darts(sharing="none", cells=3)
    assert space.cell_names == ("cell0", "cell1", "cell2")
    assert len(space.decisions) == 3 * 14


def test_fixed_edges_join_the_first_input_and_the_state_before() -> None:
    space = Darts(edges="fixed")
    assert [space.sources(node) for node in range(4)] == [(0, 1), (0, 2), (0, 3), (0, 4)]


def test_settings_that_break_a_rule_are_all_reported() -> None:
    with pytest.raises(SettingError) as caught:
        Darts(nodes=0, cells=0, cells_per_block=-1, edges="some", sharing="all", operations=("none",))  # type: ignore[arg-type]
    assert caught.value.problems == (
        "space.nodes must lie in 1..64, got 0",
        "space.cells must lie in 1..1000, got 0",
        "space.cells_per_block must lie in 0..1000, got -1",
        "space.edges must be 'searched' or 'fixed', got 'some'",
        "space.sharing must be 'kind' or 'none', got 'all'",
        "space.operations must be distinct names, more than none, got ['none']",
    )


# --- decoding, by hand; options are (none, skip_connect, sep_conv_3x3)


def scores(*node_3: list[float]) -> dict[str, list[float]]:
    names = ["normal/0->3", "normal/1->3", "normal/2->3"]
    return {
        "normal/0->2": [0.0, 0.6, 0.4],
        "normal/1->2": [0.0, 0.3, 0.7],
        **dict(zip(names, node_3, strict=True)),
    }


def test_the_two_best_edges_of_a_node_are_kept() -> None:
    decoded = SMALL.decode(scores([0.1, 0.5, 0.4], [0.1, 0.2, 0.7], [0.0, 0.6, 0.4]))
    assert kept(decoded) == {
        "normal/0->2": "skip_connect",
        "normal/1->2": "sep_conv_3x3",
        "normal/1->3": "sep_conv_3x3",
        "normal/2->3": "skip_connect",
    }


def test_of_equal_edges_the_earlier_one_is_kept() -> None:
    decoded = SMALL.decode(scores([0.0, 0.5, 0.5], [0.0, 0.5, 0.5], [0.0, 0.5, 0.5]))
    assert kept(decoded) == {
        "normal/0->2": "skip_connect",
        "normal/1->2": "sep_conv_3x3",
        "normal/0->3": "skip_connect",
        "normal/1->3": "skip_connect",
    }


MOSTLY_NONE = scores([0.9, 0.02, 0.08], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5])


@pytest.mark.parametrize("keep_none", [None, False])
def test_none_ranks_no_edge_and_wins_no_edge(keep_none: bool | None) -> None:
    decoded = SMALL.decode(MOSTLY_NONE, keep_none=keep_none)
    assert kept(decoded) == {
        "normal/0->2": "skip_connect",
        "normal/1->2": "sep_conv_3x3",
        "normal/1->3": "skip_connect",
        "normal/2->3": "sep_conv_3x3",
    }


def test_none_is_left_out_of_the_choice_even_on_a_kept_edge() -> None:
    decoded = SMALL.decode(scores([0.0, 0.05, 0.05], [0.8, 0.15, 0.05], [0.2, 0.3, 0.5]))
    assert decoded["normal/1->3"] == "skip_connect"


def test_with_keep_none_an_edge_may_be_kept_through_none_and_connects_nothing() -> None:
    decoded = SMALL.decode(MOSTLY_NONE, keep_none=True)
    assert kept(decoded) == {
        "normal/0->2": "skip_connect",
        "normal/1->2": "sep_conv_3x3",
        "normal/2->3": "sep_conv_3x3",
    }
    assert SMALL.parse(SMALL.format(decoded)) == decoded


def test_an_edge_with_nothing_left_loses_even_to_negative_scores() -> None:
    space = SMALL.restrict({"normal/0->3": [NONE]})
    decoded = space.decode({**scores([1.0], [-9.0, -1.0, -2.0], [-9.0, -3.0, -2.0])})
    assert decoded["normal/1->3"] == "skip_connect"
    assert decoded["normal/2->3"] == "sep_conv_3x3"


def test_fixed_edges_are_all_kept() -> None:
    space = Darts(edges="fixed", nodes=2, operations=("skip_connect", "sep_conv_3x3"), cells=1)
    decoded = space.decode({decision.name: [0.1, 0.9] for decision in space.decisions})
    assert set(decoded.values()) == {"sep_conv_3x3"}
    assert list(decoded) == ["normal/0->2", "normal/1->2", "normal/0->3", "normal/2->3"]


# --- sampling and mutating


def test_sampling_is_uniform_over_cells() -> None:
    rng = random.Random(0)
    counts = Counter(NO_NONE.sample(rng) for _ in range(4800))
    assert len(counts) == 48
    assert all(50 < count < 160 for count in counts.values())  # 100 expected, standard deviation 10


def test_sampling_stays_uniform_where_edges_keep_different_numbers_of_options() -> None:
    space = NO_NONE.restrict({"normal/2->3": ["skip_connect"], "normal/0->2": ["skip_connect"]})
    rng = random.Random(0)
    counts = Counter(space.sample(rng) for _ in range(1600))
    assert len(counts) == space.cardinality == 2 * (4 + 2 + 2)
    assert all(55 < count < 145 for count in counts.values())  # 100 expected; by edges first, 67 and 133


def test_sampled_nodes_read_two_states() -> None:
    rng = random.Random(1)
    for _ in range(20):
        (normal, reduce) = SPACE.graphs(SPACE.sample(rng))
        assert normal.name == "normal"
        assert reduce.outputs == (2, 3, 4, 5)
        for graph in (normal, reduce):
            assert Counter(target for _, target, _ in graph.edges) == {2: 2, 3: 2, 4: 2, 5: 2}
            assert graph.nodes == 6


def test_edges_left_with_none_are_neither_sampled_nor_grown() -> None:
    space = NO_NONE.restrict({"normal/2->3": ["skip_connect"]})
    barren = Darts(nodes=2, operations=(NONE, "skip_connect"), cells=1)
    barren = barren.restrict({decision.name: [NONE] for decision in barren.decisions})
    nothing = barren.sample(random.Random(0))
    assert kept(nothing) == {}
    assert barren.mutate(nothing, random.Random(0)) == nothing
    assert all(space.sample(random.Random(seed))["normal/2->3"] != "sep_conv_3x3" for seed in range(30))


@pytest.mark.parametrize("space", [SPACE, NO_NONE, Darts(edges="fixed", operations=("skip_connect", "sep_conv_3x3"))])
def test_mutation_changes_one_operation_or_moves_one_edge(space: Darts) -> None:
    rng = random.Random(0)
    moved = 0
    parent = space.sample(rng)
    for _ in range(200):
        child = space.check(space.mutate(parent, rng))
        differing = [name for name in parent if parent[name] != child[name]]
        if len(differing) == 2:
            moved += 1
            assert sorted(child[name] == NONE for name in differing) == [False, True]
            assert len({name.split("->")[1] for name in differing}) == 1
        else:
            assert len(differing) == 1
            assert NONE not in (parent[differing[0]], child[differing[0]])
        parent = child
    assert (moved > 20) == (space.edges == "searched")


def test_a_node_that_reads_nothing_gains_an_input() -> None:
    empty = Architecture({decision.name: NONE for decision in NO_NONE.decisions})
    assert len(kept(NO_NONE.mutate(empty, random.Random(0)))) == 1


def test_an_edge_moves_to_a_source_that_still_has_options() -> None:
    """With one operation per edge nothing but moving is left; the operation changes where it has to."""
    only = {"normal/0->3": ["skip_connect"], "normal/1->3": ["skip_connect"], "normal/2->3": ["sep_conv_3x3"]}
    space = NO_NONE.restrict({"normal/0->2": ["skip_connect"], "normal/1->2": ["skip_connect"], **only})
    rng = random.Random(0)
    lineage = [space.sample(rng)]
    for _ in range(40):
        lineage.append(space.check(space.mutate(lineage[-1], rng)))
    assert len(set(lineage)) == space.cardinality == 3
    assert any(parent == child for parent, child in pairwise(lineage))  # the first node cannot change


# --- genotypes


def test_the_published_genotype_is_read_and_written_back() -> None:
    architecture = SPACE.parse(PUBLISHED)
    assert architecture["normal/1->4"] == "sep_conv_3x3"
    assert architecture["normal/2->5"] == "dil_conv_3x3"
    assert architecture["reduce/2->3"] == "skip_connect"
    assert len(kept(architecture)) == 16
    assert SPACE.format(architecture) == (
        "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('sep_conv_3x3', 1), "
        "('skip_connect', 0), ('sep_conv_3x3', 1), ('skip_connect', 0), ('dil_conv_3x3', 2)], "
        "normal_concat=range(2, 6), "
        "reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('max_pool_3x3', 1), ('skip_connect', 2), "
        "('max_pool_3x3', 0), ('skip_connect', 2), ('max_pool_3x3', 1), ('skip_connect', 2)], "
        "reduce_concat=range(2, 6))"
    )
    assert SPACE.parse(SPACE.format(architecture)) == architecture


def test_concat_may_be_left_out() -> None:
    space = Darts(cells=1, nodes=1)
    assert kept(space.parse("Genotype(normal=[('skip_connect', 0), ('none', 1)])")) == {"normal/0->2": "skip_connect"}


NORMAL = "[('skip_connect', 0), ('skip_connect', 1)]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "Genotype(normal=__import__('os').system('x'))",
            r"^a part of a genotype is a list or range\(a, b\), got '__import__\('os'\)\.system\('x'\)'$",
        ),
        (
            "Genotype(normal=[__import__('os'), 1])",
            r"^a genotype holds pairs like \('skip_connect', 0\), got '__import__\('os'\)'$",
        ),
        ("__import__('os').system('x')", r"^a genotype reads Genotype\(normal=\[\.\.\.\], \.\.\.\), got "),
        ("Genotype([1])", r"^a genotype reads Genotype\(normal=\[\.\.\.\], \.\.\.\), got "),
        ("Genotype(\n", "^not a genotype: "),
        ("Genotype(normal=\0)", "^not a genotype: "),
        ("Genotype(normal=" + "[" * 10_000 + "]" * 10_000 + ")", "^not a genotype: "),
        ("Genotype(normal=" + "-" * 90_000 + "1)", "^not a genotype: nested too deeply$"),
        ("Genotype(normal=a" + ".a" * 1000 + ")", "got 'an expression of great depth'$"),
        ("x" * 100_001, "^a genotype has at most 100000 characters, got 100001$"),
        ("Genotype()", "^the genotype lacks cell 'normal'; this space has the cells normal$"),
        (f"Genotype(normal={NORMAL}, reduce={NORMAL})", "^the genotype has an unknown part 'reduce'; this space has "),
        (f"Genotype(**{NORMAL})", "^the genotype lacks cell 'normal'"),
        ("Genotype(normal=[])", r"^cell 'normal' must be a list of 2 pairs \(operation, source\)$"),
        ("Genotype(normal=[1, 2])", r"^cell 'normal' must be a list of 2 pairs \(operation, source\)$"),
        ("Genotype(normal=range(0, 2))", r"^cell 'normal' must be a list of 2 pairs \(operation, source\)$"),
        ("Genotype(normal=range(0, 1000000000))", r"^a part of a genotype is a list or range\(a, b\), got 'range"),
        (
            "Genotype(normal=[('skip_connect', 0), ('skip_connect', 0)])",
            r"^node 2 of cell 'normal' must read two different states of \[0, 1\], got 0$",
        ),
        (
            "Genotype(normal=[('skip_connect', 0), ('skip_connect', 2)])",
            r"^node 2 of cell 'normal' must read two different states of \[0, 1\], got 2$",
        ),
        (
            "Genotype(normal=[('skip_connect', 0), ('skip_connect', True)])",
            "^a genotype holds pairs like .*, got 'True'",
        ),
        (
            "Genotype(normal=[('skip_connect', 0), ('skip', 1)])",
            "^decision 'normal/1->2' has no option 'skip'",
        ),
        (
            f"Genotype(normal={NORMAL}, normal_concat=range(2, 4))",
            r"^normal_concat must be range\(2, 3\), got \[2, 3\]$",
        ),
    ],
)
def test_a_text_that_is_no_genotype_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        Darts(cells=1, nodes=1).parse(text)


def test_nothing_in_a_genotype_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr("os.system", called.append)
    with pytest.raises(ParseError):
        SPACE.parse("Genotype(normal=__import__('os').system('x'), reduce=[__import__('os').system('y')])")
    assert called == []


def test_a_node_of_three_inputs_is_refused() -> None:
    choices = dict(NO_NONE.sample(random.Random(0)))
    choices.update(dict.fromkeys(["normal/0->3", "normal/1->3", "normal/2->3"], "skip_connect"))
    with pytest.raises(ParseError, match=r"^node 3 of cell 'normal' must have at most 2 inputs, got 3$"):
        NO_NONE.check(choices)


def test_fixed_edges_allow_none_only_where_it_is_an_operation() -> None:
    space = Darts(edges="fixed", nodes=1, cells=1, operations=("skip_connect",))
    with pytest.raises(ParseError, match=r"^decision 'normal/1->2' has no option 'none'"):
        space.check({"normal/0->2": "skip_connect", "normal/1->2": NONE})


def test_graphs_list_connected_edges_only() -> None:
    space = Darts(cells=1, nodes=1)
    (graph,) = space.graphs(space.parse("Genotype(normal=[('none', 0), ('sep_conv_5x5', 1)])"))
    assert graph.edges == ((1, 2, "sep_conv_5x5"),)
    assert graph.inputs == ("c_{k-2}", "c_{k-1}")


def test_the_size_of_the_space_is_that_of_the_paper() -> None:
    assert math.isclose(SPACE.cardinality, 1.1e18, rel_tol=0.05)
