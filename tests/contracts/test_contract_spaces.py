"""What every search space owes: architectures that survive every way in and out. A row in SPACES is tested here."""

from __future__ import annotations

import random

import pytest
import torch

from archloom.families import build_network
from archloom.objectives import CostTable
from archloom.spaces import NONE, SPACES, Architecture, SearchSpace
from archloom.supernet import EveryOption


@pytest.fixture(params=list(SPACES))
def space(request) -> SearchSpace:
    entry = SPACES[request.param]
    return entry.load()(**entry.settings)


def samples(space: SearchSpace, count: int = 30) -> list[Architecture]:
    rng = random.Random(0)
    return [space.sample(rng) for _ in range(count)]


def test_samples_are_valid_and_differ(space):
    drawn = samples(space)
    assert all(space.check(architecture) == architecture for architecture in drawn)
    assert len(set(drawn)) > 20


def test_the_same_generator_gives_the_same_samples(space):
    assert samples(space) == samples(space)


def test_text_and_json_read_back_what_was_written(space):
    for architecture in samples(space):
        assert space.parse(space.format(architecture)) == architecture
        assert space.from_json(architecture.to_json()) == architecture


def test_mutation_gives_a_different_valid_architecture(space):
    rng = random.Random(1)
    for parent in samples(space):
        child = space.mutate(parent, rng)
        assert space.check(child) == child
        assert child != parent
        assert sum(child[name] != parent[name] for name in parent) <= 2  # one choice, or one input moved


def test_decoding_one_hot_scores_returns_the_architecture(space):
    for architecture in samples(space, 5):
        scores = {
            decision.name: [float(option == architecture[decision.name]) for option in decision.options]
            for decision in space.decisions
        }
        keeps_none = NONE in architecture.values() and not hasattr(space, "cell_names")
        assert space.decode(scores, keep_none=keeps_none or None) == architecture


def test_decoding_without_none_never_gives_up_an_input(space):
    scores = {decision.name: [1.0] + [0.0] * (len(decision.options) - 1) for decision in space.decisions}
    decoded = space.decode(scores, keep_none=False)
    for graph in space.graphs(decoded):
        reached = {target for _, target, _ in graph.edges}
        assert reached == set(range(len(graph.inputs), graph.nodes))


def test_graphs_list_exactly_what_is_connected(space):
    if space.widths:  # a layer takes several decisions there: graphs show those that matter, and only those
        assert all(shows_what_matters(space, architecture) for architecture in samples(space, 5))
        return
    for architecture in samples(space, 5):
        listed = [operation for graph in space.graphs(architecture) for _, _, operation in graph.edges]
        assert sorted(listed) == sorted(option for option in architecture.values() if option != NONE)


def shows_what_matters(space: SearchSpace, architecture: Architecture) -> bool:
    shown, active = space.graphs(architecture), space.active(architecture)
    inner = [d for d in space.decisions if d.name.endswith((".kernel", ".expansion")) and not d.name.startswith("stem")]
    others = {d.name: next(option for option in d.options if option != architecture[d.name]) for d in inner}
    return all(
        (space.graphs(architecture.with_option(name, other)) != shown) == (name in active)
        for name, other in others.items()
    )


def test_restricting_leaves_only_what_is_kept(space):
    decision = space.decisions[0]
    narrow = space.restrict({decision.name: decision.options[-1:]})
    assert narrow.decision(decision.name).options == decision.options[-1:]
    assert narrow.cardinality < space.cardinality
    assert {a[decision.name] for a in samples(narrow)} <= {decision.options[-1], NONE}


def test_the_network_builds_and_every_cost_is_positive(space):
    narrow = {} if space.widths else {"channels": 2}  # where widths are not chosen, they are a setting
    with torch.device("meta"):
        build_network(space, EveryOption(), classes=3, colours=1, **narrow)
    table = CostTable(space, classes=3, image_shape=(1, 8, 8), **narrow)
    for architecture in samples(space, 3):
        cost = table.cost(architecture)
        assert cost.parameters > 0
        assert cost.multiply_adds > 0


def test_equal_settings_make_equal_spaces(space):
    assert space == type(space)(
        **{key: value for key, value in vars(space).items() if key in space.__dataclass_fields__}
    )
    assert hash(space) == hash(space.restrict({}))


def test_every_space_says_what_it_is_in_one_line():
    for entry in SPACES.values():
        assert 20 < len(entry.describe()) <= 120


@pytest.mark.parametrize("name", SPACES)
def test_what_costs_and_what_matters_are_choices_of_the_architecture(name):
    """A feature is there if and only if all its pairs are chosen, or a linear model of costs would be wrong."""
    entry = SPACES[name]
    space = entry.load()(**entry.settings)
    drawn = [space.sample(random.Random(seed)) for seed in range(8)]
    features = {feature for one in drawn for feature in space.cost_features(one)}
    for one in drawn:
        own = space.cost_features(one)
        assert len(set(own)) == len(own)
        assert set(own) == {feature for feature in features if all(one[d] == option for d, option in feature)}
        assert space.active(one) <= set(one)
    names = {decision.name for decision in space.decisions}
    assert space.widths <= names
    for width in space.widths:
        assert all(float(option) > 0 for option in space.decision(width).options)
