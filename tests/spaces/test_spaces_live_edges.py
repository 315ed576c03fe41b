"""Live edges lie on a path from an input to an output; pruning removes the others and nothing else."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from archloom.spaces import NONE, SPACES, Architecture, CellGraph, Darts, Decision, Nb201, SearchSpace
from archloom.spaces.live_edges import find_live_edges, is_connected

FOUR, THREE = Nb201(), Nb201(nodes=3)


def test_an_edge_is_live_if_an_input_feeds_it_and_an_output_uses_it() -> None:
    edges = ((0, 1, "a"), (1, 3, "b"), (0, 2, "unused"), (4, 3, "unfed"))
    graph = CellGraph("cell", ("input",), 5, edges, (3,))
    assert find_live_edges(graph) == ((0, 1, "a"), (1, 3, "b"))
    assert is_connected(graph)
    assert not is_connected(CellGraph("cell", ("input",), 3, ((0, 1, "a"),), (2,)))


@pytest.mark.parametrize(
    ("text", "pruned"),
    [
        (  # node 1 feeds nothing
            "|nor_conv_3x3~0|+|skip_connect~0|none~1|+|none~0|none~1|nor_conv_3x3~2|",
            "|none~0|+|skip_connect~0|none~1|+|none~0|none~1|nor_conv_3x3~2|",
        ),
        (  # nothing feeds node 1, so nothing that it feeds computes anything
            "|none~0|+|none~0|nor_conv_1x1~1|+|skip_connect~0|avg_pool_3x3~1|nor_conv_3x3~2|",
            "|none~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|",
        ),
        (  # a chain of dead edges
            "|nor_conv_3x3~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|none~1|none~2|",
            "|none~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|",
        ),
        (  # no path at all
            "|nor_conv_3x3~0|+|none~0|none~1|+|none~0|none~1|nor_conv_3x3~2|",
            "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|",
        ),
        (
            "|nor_conv_3x3~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|none~1|skip_connect~2|",
            "|nor_conv_3x3~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|none~1|skip_connect~2|",
        ),
    ],
)
def test_pruning_removes_dead_edges_of_a_cell(text: str, pruned: str) -> None:
    assert FOUR.format(FOUR.prune(FOUR.parse(text))) == pruned


def test_pruned_cells_have_live_edges_only_and_the_same_ones() -> None:
    for architecture in THREE.enumerate():
        pruned = THREE.prune(architecture)
        (before,), (after,) = THREE.graphs(architecture), THREE.graphs(pruned)
        assert find_live_edges(before) == find_live_edges(after) == after.edges
        assert THREE.prune(pruned) == pruned


def test_an_edge_that_cannot_be_none_stays() -> None:
    space = FOUR.restrict({"0->1": ("nor_conv_3x3",)})
    architecture = space.check({**{d.name: NONE for d in space.decisions}, "0->1": "nor_conv_3x3"})
    assert space.prune(architecture) == architecture


def test_a_darts_node_without_inputs_feeds_nothing() -> None:
    space = Darts()
    choices = {decision.name: NONE for decision in space.decisions}
    choices |= {"normal/0->2": "sep_conv_3x3", "normal/3->4": "sep_conv_5x5", "reduce/1->2": "max_pool_3x3"}
    pruned = space.prune(space.check(choices))
    assert pruned == space.check({**choices, "normal/3->4": NONE})


@dataclass(frozen=True, kw_only=True)
class WithNorm(SearchSpace):
    """A space whose option `none` draws no edge."""

    network = "archloom.families.nb201:Nb201Network"

    def full_decisions(self) -> tuple[Decision, ...]:
        return (Decision("layer", ("conv_1x1", "conv_3x3")), Decision("norm", (NONE, "batch")))

    def parse(self, text: str) -> Architecture:
        layer, norm = text.split()
        return self.check({"layer": layer, "norm": norm})

    def format(self, architecture: Architecture) -> str:
        return f"{architecture['layer']} {architecture['norm']}"

    def graphs(self, architecture: Mapping[str, str]) -> tuple[CellGraph, ...]:
        return (CellGraph("chain", ("input",), 2, ((0, 1, architecture["layer"]),), (1,)),)


def test_a_choice_that_is_not_drawn_is_not_dead() -> None:
    architecture = WithNorm().parse("conv_3x3 batch")
    assert WithNorm().prune(architecture) == architecture


@pytest.mark.parametrize("name", ["nats_size", "proxylessnas_32", "mobilenet_v3_like_32", "s1", "s2"])
def test_spaces_without_dead_edges_return_the_architecture(name: str) -> None:
    entry = SPACES.find(name)
    space = entry.load()(**entry.settings)
    rng = random.Random(0)
    for _ in range(5):
        architecture = space.sample(rng)
        assert space.prune(architecture) == architecture
