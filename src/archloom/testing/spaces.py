"""The contract of a search space."""

from __future__ import annotations

import random
from dataclasses import fields

import torch

from archloom.core.settings import Settings
from archloom.families import build_network, family_of
from archloom.objectives import CostTable
from archloom.spaces import NONE, SPACES, Architecture, SearchSpace
from archloom.spaces.live_edges import find_live_edges
from archloom.supernet import EveryOption
from archloom.tasks import LANGUAGE, ImageShape, TextShape
from archloom.testing.strategies import check_help


def build_space(name: str, settings: Settings | None = None) -> SearchSpace:
    """Return the space of a name, or of `module:Class`, with these settings."""
    entry = SPACES.find_named_by_code(name)
    space: SearchSpace = entry.load()(**{**entry.settings, **(settings or {})})
    return space


def sample(space: SearchSpace, count: int = 30) -> list[Architecture]:
    """Return architectures of a space, the same at every call."""
    rng = random.Random(0)
    return [space.sample(rng) for _ in range(count)]


class NamedSpace:
    """The space that a contract is tested on.

    Attributes:
        space: the name of the space, as `module:Class`.
        settings: settings of the space; small ones keep tests fast.
        network: settings of its network; by default two channels, or none where widths are searched.
    """

    space: str
    settings: Settings = {}  # noqa: RUF012 - a subclass or an instance may set its own
    network: Settings | None = None

    def build(self) -> SearchSpace:
        """Return the space."""
        return build_space(self.space, self.settings)


class SpaceContract(NamedSpace):
    """What every search space must do, as tests. Subclass it in a test file and name your space.

    Examples:
        >>> from archloom.testing import SpaceContract
        >>> class TestCell(SpaceContract):
        ...     space = "nb201_mini"
        >>> TestCell().test_text_and_json_read_back_what_was_written()
    """

    def test_samples_are_valid_and_differ(self) -> None:
        """Sampling reaches many architectures, all of them valid."""
        space = self.build()
        drawn = sample(space)
        for architecture in drawn:
            assert space.check(architecture) == architecture, f"sample() must return a valid value, got {architecture}"
        count, wanted = len(set(drawn)), min(20, space.cardinality / 4)
        assert count > wanted, f"30 samples must hold more than {wanted:g} different architectures, got {count}"

    def test_the_same_generator_gives_the_same_samples(self) -> None:
        """Sampling depends on the generator alone."""
        assert sample(self.build()) == sample(self.build()), "sample() must use the generator that it is given"

    def test_text_and_json_read_back_what_was_written(self) -> None:
        """An architecture survives every way in and out."""
        space = self.build()
        for architecture in sample(space):
            text = space.format(architecture)
            assert space.parse(text) == architecture, f"parse() must return what format() wrote, got {text!r}"
            assert space.from_json(architecture.to_json()) == architecture, f"JSON must keep {architecture}"

    def test_mutation_gives_a_different_valid_architecture(self) -> None:
        """A mutation changes one choice, or moves one input."""
        space, rng = self.build(), random.Random(1)
        for parent in sample(space):
            child = space.mutate(parent, rng)
            assert space.check(child) == child, f"mutate() must return a valid value, got {child}"
            changed = [name for name in parent if child[name] != parent[name]]
            assert 1 <= len(changed) <= 2, f"mutate() must change one choice or move one input, got {changed}"

    def test_decoding_one_hot_scores_returns_the_architecture(self) -> None:
        """An architecture is what its own scores stand for."""
        space = self.build()
        for architecture in sample(space, 5):
            scores = {
                decision.name: [float(option == architecture[decision.name]) for option in decision.options]
                for decision in space.decisions
            }
            keeps_none = NONE in architecture.values() and not hasattr(space, "cell_names")
            decoded = space.decode(scores, keep_none=keeps_none or None)
            assert decoded == architecture, f"decode() must return {architecture}, got {decoded}"

    def test_decoding_without_none_connects_every_node(self) -> None:
        """Without `none`, every node has an input."""
        space = self.build()
        scores = {decision.name: [1.0] + [0.0] * (len(decision.options) - 1) for decision in space.decisions}
        for graph in space.graphs(space.decode(scores, keep_none=False)):
            reached, wanted = {target for _, target, _ in graph.edges}, set(range(len(graph.inputs), graph.nodes))
            assert reached == wanted, f"edges of graph '{graph.name}' must reach {wanted}, got {reached}"

    def test_graphs_list_exactly_what_is_connected(self) -> None:
        """A drawing shows every choice that matters, and no other."""
        space = self.build()
        for architecture in sample(space, 5):
            if space.widths:  # a layer takes several decisions there
                check_graphs_show_active_choices(space, architecture)
            else:
                shown = sorted(operation for graph in space.graphs(architecture) for _, _, operation in graph.edges)
                chosen = sorted(option for option in architecture.values() if option != NONE)
                assert shown == chosen, f"edges of graphs() must have the options {chosen}, got {shown}"

    def test_references_are_architectures_without_dead_edges(self) -> None:
        """A race can train every reference as it is."""
        space = self.build()
        for name, reference in space.references().items():
            assert space.check(reference) == reference, f"reference '{name}' must be a valid value, got {reference}"
            assert space.prune(reference) == reference, f"reference '{name}' must have no dead edge, got {reference}"

    def test_pruning_keeps_the_live_edges_and_leaves_no_other_to_prune(self) -> None:
        """A pruned architecture computes the same with fewer operations."""
        space = self.build()
        for architecture in sample(space, 5):
            pruned = space.prune(architecture)
            assert space.check(pruned) == pruned, f"prune() must return a valid value, got {pruned}"
            assert space.prune(pruned) == pruned, f"prune() must leave nothing to prune, got {pruned}"
            before, after = map(space.graphs, (architecture, pruned))
            kept = [find_live_edges(graph) for graph in before] == [find_live_edges(graph) for graph in after]
            assert kept, f"prune() must keep all live edges of {architecture}, got {pruned}"

    def test_restricting_leaves_only_what_is_kept(self) -> None:
        """A restricted space offers fewer options and is smaller."""
        space = self.build()
        decision = space.decisions[0]
        last = decision.options[-1]
        narrow = space.restrict({decision.name: (last,)})
        assert narrow.decision(decision.name).options == (last,)
        assert narrow.cardinality < space.cardinality
        left = {architecture[decision.name] for architecture in sample(narrow)}
        assert left <= {last, NONE}, f"the restricted space must offer '{last}' only, got {left}"

    def test_the_network_builds_and_every_cost_is_positive(self) -> None:
        """The family builds the network; parameters and multiply-adds can be counted."""
        space = self.build()
        network = network_settings(space, self.network)
        is_text = family_of(space).task is LANGUAGE
        with torch.device("meta"):
            build_network(space, EveryOption(), TextShape(5) if is_text else ImageShape(3, 1), **network)
        facts = {"words": 5} if is_text else {"classes": 3, "image_shape": (1, 8, 8)}
        table = CostTable(space, **facts, **network)
        for architecture in sample(space, 3):
            cost = table.cost(architecture)
            assert cost.parameters > 0 and cost.multiply_adds > 0, f"a cost must be above 0, got {cost}"

    def test_equal_settings_make_equal_spaces(self) -> None:
        """A space is a value: equal to its copy, and hashable."""
        space = self.build()
        copy = type(space)(**{field.name: getattr(space, field.name) for field in fields(space)})
        assert space == copy and hash(space) == hash(space.restrict({})), f"{space} must equal its copy"

    def test_costs_and_active_decisions_are_choices_of_the_architecture(self) -> None:
        """A cost feature is present exactly if all its pairs are chosen, or a linear model of costs would be wrong."""
        space = self.build()
        drawn = [space.sample(random.Random(seed)) for seed in range(8)]
        features = {feature for one in drawn for feature in space.cost_features(one)}
        for one in drawn:
            own = space.cost_features(one)
            assert len(set(own)) == len(own), f"cost_features() must not repeat a feature, got {own}"
            wanted = {feature for feature in features if all(one[name] == option for name, option in feature)}
            assert set(own) == wanted, f"cost_features() must be {wanted}, got {own}"
            assert space.active(one) <= set(one), f"active() must name decisions, got {space.active(one)}"
        assert space.widths <= {decision.name for decision in space.decisions}
        for width in space.widths:
            assert all(float(option) > 0 for option in space.decision(width).options), f"width {width} must be above 0"

    def test_every_setting_has_help(self) -> None:
        """`archloom list spaces NAME` can print a line for each setting."""
        check_help(SPACES.find_named_by_code(self.space).load())


def network_settings(space: SearchSpace, given: Settings | None) -> Settings:
    """Return the settings of a small network; where widths are searched, there is no setting for them."""
    if given is not None:
        return dict(given)
    if family_of(space).task is LANGUAGE:
        return {"hidden": 4}
    return {} if space.widths else {"channels": 2}


def check_graphs_show_active_choices(space: SearchSpace, architecture: Architecture) -> None:
    """Assert that another option changes the graphs exactly if its decision is active."""
    shown, active = space.graphs(architecture), space.active(architecture)
    inner = [d for d in space.decisions if d.name.endswith((".kernel", ".expansion")) and not d.name.startswith("stem")]
    for decision in inner:
        other = next(option for option in decision.options if option != architecture[decision.name])
        changed = space.graphs(architecture.with_option(decision.name, other)) != shown
        assert changed == (decision.name in active), f"graphs() must show {decision.name} if and only if it is active"
