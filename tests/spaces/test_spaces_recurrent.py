"""The recurrent cell as a space: its size, its text form in both directions, and how scores become a cell."""

from __future__ import annotations

import random

import pytest

from archloom.core.errors import ParseError, SettingError
from archloom.reports.cells import draw_cells, draw_text
from archloom.spaces import NONE, SPACES, Recurrent, SearchSpace
from archloom.spaces.published import PUBLISHED

CELLS = ("darts_v1_rnn", "darts_v2_rnn", "gdas_rnn", "enas_rnn")
TWO = Recurrent(nodes=2)


def space_of(name: str) -> SearchSpace:
    entry = SPACES[PUBLISHED[name][0]]
    space: SearchSpace = entry.load()(**entry.settings)
    return space


def test_cardinality_counts_edges_and_activations() -> None:
    assert Recurrent().cardinality == 2_642_411_520
    assert Recurrent(nodes=11).cardinality == 167_423_193_907_200
    assert len(Recurrent().decisions) == 36
    assert sum(len(decision.options) for decision in Recurrent().decisions) == 180
    assert Recurrent().decisions[0].options == (NONE, "tanh", "relu", "sigmoid", "identity")


@pytest.mark.parametrize("name", CELLS)
def test_published_cells_read_back(name: str) -> None:
    space, text = space_of(name), PUBLISHED[name][1]
    architecture = space.parse(text)
    assert space.format(architecture) == text
    assert space.prune(architecture) == architecture


def test_the_published_cell_of_enas_averages_its_loose_ends() -> None:
    space = space_of("enas_rnn")
    assert isinstance(space, Recurrent)
    assert space.list_outputs(space.parse(PUBLISHED["enas_rnn"][1])) == (2, 5, 6, 9, 10, 11)
    assert list(space.references()) == ["ENAS cell"]
    assert list(Recurrent().references()) == ["DARTS V1 cell", "DARTS V2 cell", "GDAS cell"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "Genotype(recurrent=[('tanh', 0), ('relu', 2)], concat=range(1, 3))",
            "node 2 must read a state of 0..1, got 2",
        ),
        ("Genotype(recurrent=[('tanh', 0), ('relu', -1)], concat=range(1, 3))", "holds pairs"),
        ("Genotype(recurrent=[('tanh', 0), ('gelu', 1)], concat=range(1, 3))", "has no option 'gelu'"),
        ("Genotype(recurrent=[('tanh', 0)], concat=range(1, 3))", "list of 2 pairs .*, got 1"),
        ("Genotype(recurrent=[('tanh', 0)] * 2, concat=range(1, 3))", "is a list or range"),
        ("Genotype(recurrent=[('tanh', 0), ('relu', 1)], concat=range(0, 3))", "concat must be all nodes"),
        ("Genotype(recurrent=[('tanh', 0), ('relu', 1)], concat=[1, 1])", "concat must be all nodes"),
        ("Genotype(recurrent=[('tanh', 0), ('relu', 1)], concat=[1, 2, 3])", "concat must be all nodes"),
        ("Genotype(recurrent=[('tanh', 0), ('relu', 1)], concat=[2])", "concat must be all nodes"),
        ("Genotype(normal=[('tanh', 0), ('relu', 1)])", "unknown part 'normal'"),
        ("Genotype(concat=range(1, 3))", "lacks cell 'recurrent'"),
        ("Genotype(recurrent=[('tanh', 0), 3], concat=range(1, 3))", "list of 2 pairs"),
        ("Genotype(recurrent=__import__('os').listdir('/'), concat=range(1, 3))", "is a list or range"),
        ("__import__('os').system('true')", "a genotype reads"),
    ],
)
def test_malformed_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        TWO.parse(text)


def test_a_cell_that_averages_fewer_nodes_is_read_where_these_are_its_loose_ends() -> None:
    text = "Genotype(recurrent=[('tanh', 0), ('relu', 1)], concat=[2])"
    space = Recurrent(nodes=2, output="loose_ends")
    assert space.format(space.parse(text)) == text
    with pytest.raises(ParseError, match=r"the nodes that no node reads, \[2\], got \[1, 2\]"):
        space.parse("Genotype(recurrent=[('tanh', 0), ('relu', 1)], concat=range(1, 3))")


def test_a_node_reads_one_state_at_most() -> None:
    with pytest.raises(ParseError, match="node 2 must read one state, got 2"):
        TWO.check({"0->1": "tanh", "0->2": "relu", "1->2": "relu"})


def scores(**rows: list[float]) -> dict[str, list[float]]:
    names = {"a": "0->1", "b": "0->2", "c": "1->2"}
    return {names[key]: row for key, row in rows.items()}


def test_decoding_keeps_the_edge_with_the_largest_probability() -> None:
    row = [0.1, 0.6, 0.1, 0.1, 0.1]
    found = TWO.decode(scores(a=row, b=[0.1, 0.1, 0.4, 0.2, 0.2], c=[0.0, 0.1, 0.1, 0.5, 0.3]))
    assert dict(found) == {"0->1": "tanh", "0->2": NONE, "1->2": "sigmoid"}
    tied = TWO.decode(scores(a=row, b=[0.0, 0.1, 0.5, 0.2, 0.2], c=[0.0, 0.1, 0.1, 0.5, 0.3]))
    assert dict(tied) == {"0->1": "tanh", "0->2": "relu", "1->2": NONE}  # the lower state


def test_none_takes_no_part_unless_it_may_win() -> None:
    row, likely = [0.1, 0.6, 0.1, 0.1, 0.1], [0.9, 0.04, 0.03, 0.02, 0.01]
    given = scores(a=row, b=likely, c=[0.4, 0.3, 0.1, 0.1, 0.1])
    assert dict(TWO.decode(given)) == {"0->1": "tanh", "0->2": NONE, "1->2": "tanh"}
    closed = TWO.decode(given, keep_none=True)
    assert dict(closed) == {"0->1": "tanh", "0->2": NONE, "1->2": NONE}
    assert TWO.format(closed) == "Genotype(recurrent=[('tanh', 0), ('none', 0)], concat=range(1, 3))"
    assert TWO.parse(TWO.format(closed)) == closed


def test_sampling_is_uniform_over_cells() -> None:
    space, rng = Recurrent(nodes=2, activations=("tanh", "relu")), random.Random(0)
    drawn = [space.format(space.sample(rng)) for _ in range(4000)]
    counts = {text: drawn.count(text) for text in set(drawn)}
    assert len(counts) == space.cardinality == 8
    assert all(abs(count - 500) < 110 for count in counts.values())  # five deviations


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nodes": 0}, "space.nodes must lie in 1..64, got 0"),
        ({"activations": ("tanh", "gelu")}, "space.activations must be distinct names of"),
        ({"activations": ()}, "space.activations must be distinct names of"),
        ({"output": "some"}, "space.output must be 'all' or 'loose_ends', got 'some'"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Recurrent(**settings)  # type: ignore[arg-type]


def test_a_drawing_says_that_nodes_are_averaged() -> None:
    cell = TWO.parse("Genotype(recurrent=[('tanh', 0), ('relu', 1)], concat=range(1, 3))")
    (graph,) = TWO.graphs(cell)
    assert draw_text(graph).splitlines()[-1].strip() == "output = mean(node 1, node 2)"
    assert "averaged" in draw_cells([graph]) and "concatenated" not in draw_cells([graph])
