"""The mobile spaces: their published sizes, which choices matter and cost together, and their text form."""

from __future__ import annotations

import math
import random

import pytest

from archloom.core.errors import ParseError, SettingError
from archloom.spaces import SPACES, Architecture, Mobile
from archloom.spaces.mobile import REFERENCES, rounded

NAMES = [name for name, entry in SPACES.items() if entry.target.endswith(":Mobile")]
SMALL = Mobile(blocks=(16, 24), layers=(1, 2), strides=(2, 1), width_multipliers=(0.5, 1), squeeze=("off", "on"))
TEXT = "32:k3 | 8:k5 | 16:k3e6s | 24:k5e3,zero(k7e3s) | 1280"


def named(name: str) -> Mobile:
    space = SPACES[name].load()(**SPACES[name].settings)
    assert isinstance(space, Mobile)
    return space


def some(space: Mobile, count: int = 20) -> list[Architecture]:
    rng = random.Random(0)
    return [space.sample(rng) for _ in range(count)]


# --- sizes


def test_the_published_sizes_count_every_decision_that_can_be_taken() -> None:
    """TuNAS prints 1e21, 1e28 and 1e43 as upper bounds: layers left out are counted with all that they would be."""
    layers = 6**6 * 12**15  # kernel and expansion of six layers, and of fifteen that may be left out
    widths = 4**3 * 6 * 7**5  # after rounding to 8, few multiples of small widths are left
    assert named("proxylessnas").cardinality == 3 * layers
    assert named("proxylessnas_enlarged").cardinality == 3 * layers * widths
    v3 = 2 * 6 * 36**5 * 72**15 * (4 * 4 * 6 * 7**5)
    assert named("mobilenet_v3_like").cardinality == v3
    sizes = [named(name).cardinality for name in ("proxylessnas", "proxylessnas_enlarged", "mobilenet_v3_like")]
    assert [round(math.log10(size)) for size in sizes] == [21, 28, 43]


def test_widths_are_multiples_of_eight_and_the_smallest_comes_first() -> None:
    space = named("proxylessnas_enlarged")
    assert space.decision("block1.width").options == ("8", "16", "24", "32")
    assert space.decision("block2.width").options == ("16", "24", "32", "40", "48", "64")
    assert space.decision("block4.width").options == ("64", "80", "96", "128", "160", "192", "256")
    assert [rounded(value) for value in (1, 10, 11, 12, 18, 20, 183.99, 200)] == [8, 16, 16, 16, 24, 24, 184, 200]


def test_what_leaves_no_choice_is_no_decision() -> None:
    names = {decision.name for decision in named("proxylessnas").decisions}
    assert not any(name.endswith((".width", ".squeeze")) for name in names)
    assert "block1.layer1.layer" not in names  # the first layer of a block cannot be left out
    assert "block1.layer2.layer" in names
    assert named("proxylessnas").place("block2.width").options == ("40",)


def test_the_layers_of_a_block_share_a_width_and_only_the_first_has_a_stride() -> None:
    layers = named("proxylessnas_enlarged").bottlenecks
    assert len(layers) == 21
    assert [layer.stride for layer in layers] == [2, 1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1]
    assert all((layer.width == layer.width_in) == layer.residual for layer in layers)
    assert layers[0].width_in == "separable.width"
    assert named("mobilenet_v3_like").bottlenecks[0].width_in == "stem.width"


def test_activations_go_by_depth() -> None:
    kinds = [layer.activation for layer in named("mobilenet_v3_like").bottlenecks]
    assert kinds == ["relu"] * 8 + ["hard_swish"] * 12
    assert {layer.activation for layer in named("proxylessnas").bottlenecks} == {"relu"}


# --- what matters


def test_decisions_within_a_layer_left_out_do_not_matter() -> None:
    architecture = SMALL.parse(TEXT)
    inner = {"block2.layer2.kernel", "block2.layer2.expansion", "block2.layer2.squeeze"}
    assert set(architecture) - SMALL.active(architecture) == inner
    there = architecture.with_option("block2.layer2.layer", "bottleneck")
    assert SMALL.active(there) == set(there)


def test_mutation_changes_one_decision_that_matters() -> None:
    rng = random.Random(0)
    space = named("mobilenet_v3_like")
    for parent in some(space):
        child = space.mutate(parent, rng)
        (changed,) = (name for name in parent if parent[name] != child[name])
        assert changed in space.active(parent)


def test_neighbours_differ_in_what_matters() -> None:
    rng = random.Random(0)
    scores = {d.name: [rng.random() for _ in d.options] for d in SMALL.decisions}
    scores["block2.layer2.layer"] = [0.1, 0.9]
    derived, *near = SMALL.neighbours(scores, 1000)
    assert derived["block2.layer2.layer"] == "zero"
    others = sum(len(SMALL.decision(name).options) - 1 for name in SMALL.active(derived))
    assert len(near) == others
    assert len({SMALL.format(other) for other in near}) == others


def test_widths_are_what_filter_warm_up_opens() -> None:
    assert {name.rpartition(".")[2] for name in SMALL.widths} == {"width", "expansion"}
    for name in SMALL.widths:
        sizes = [float(option) for option in SMALL.decision(name).options]
        assert sizes == sorted(sizes)


def test_cost_features_are_layers_with_the_widths_around_them() -> None:
    features = [dict(feature) for feature in SMALL.cost_features(SMALL.parse(TEXT))]
    assert features == [
        {"stem.width": "32"},
        {"stem.width": "32", "separable.width": "8", "separable.kernel": "5"},
        {
            "separable.width": "8",
            "block1.width": "16",
            "block1.layer1.kernel": "3",
            "block1.layer1.expansion": "6",
            "block1.layer1.squeeze": "on",
        },
        {
            "block1.width": "16",
            "block2.width": "24",
            "block2.layer1.kernel": "5",
            "block2.layer1.expansion": "3",
            "block2.layer1.squeeze": "off",
        },
        {"block2.width": "24", "head1.width": "1280"},
    ]


@pytest.mark.parametrize("name", NAMES)
def test_equal_features_mean_equal_networks(name: str) -> None:
    space = named(name)
    for architecture in some(space, 5):
        idle = set(architecture) - space.active(architecture)
        said = {pair for feature in space.cost_features(architecture) for pair in feature}
        left_out = {(key, value) for key, value in architecture.items() if value == "zero"}
        assert said | left_out == {(key, value) for key, value in architecture.items() if key not in idle}


# --- text


def test_the_text_form_reads_as_it_is_written() -> None:
    architecture = SMALL.parse(TEXT)
    assert SMALL.format(architecture) == TEXT
    assert architecture["separable.width"] == "8"
    assert architecture["block1.layer1.squeeze"] == "on"
    assert architecture["block2.layer2.layer"] == "zero"
    assert architecture["block2.layer2.kernel"] == "7"
    assert SMALL.format(SMALL.parse(TEXT.replace("zero(k7e3s)", "zero").replace(" ", ""))) == TEXT.replace(
        "(k7e3s)", ""
    )


@pytest.mark.parametrize("name", REFERENCES)
def test_published_networks_are_in_their_spaces_by_name(name: str) -> None:
    where, text = REFERENCES[name]
    space = named(where)
    assert space.format(space.parse(name)) == text
    assert space.check(space.parse(name)) == space.parse(text)


def test_the_published_networks_of_the_v2_family_are_all_in_the_enlarged_space() -> None:
    space = named("proxylessnas_enlarged")
    depths = {"mobilenet_v2": 16, "mnasnet_b1": 16, "proxylessnas_mobile": 19}
    for name, depth in depths.items():
        left_out = list(space.parse(name).values()).count("zero")
        assert len(space.bottlenecks) - left_out == depth


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a network of this space has 5 parts joined by '|', got 1: ''"),
        ("|" * 4, "'' must list 1 layers for stem.width, got 0"),
        (TEXT.replace("32:k3 |", "32:k5 |"), "stem.kernel must be 3 in this space, got '5'"),
        (TEXT.replace("8:k5", "8:zero"), "separable.layer must be bottleneck in this space, got 'zero'"),
        (TEXT.replace("8:k5", "8:k5e3"), "separable reads like k3 or zero, got 'k5e3'"),
        (TEXT.replace("8:k5", "9:k5"), "separable.width must be 8 or 16 in this space, got '9'"),
        (TEXT.replace("32:k3 |", "zero:zero |"), "stem.width must be 16 or 32 in this space, got 'zero'"),
        (TEXT.replace("32:k3 |", "32:zero |"), "stem cannot be left out, got 'zero'"),
        (TEXT.replace("k3e6s", "zero"), "block1.layer1.layer must be bottleneck in this space, got 'zero'"),
        (TEXT.replace("k3e6s", "k3e6t"), "block1.layer1 reads like k3e6, k5e3s or zero, got 'k3e6t'"),
        (TEXT.replace("k3e6s", "k3e6.5"), "block1.layer1.expansion must be 3 or 6 in this space, got '6.5'"),
        (TEXT.replace("k3e6s", "k3e6s,zero"), "'16:k3e6s,zero' must list 1 layers for block1.width, got 2"),
        ("x" * 20_000, "the text of a mobile network has at most 10000 characters, got 20000"),
        ("mobilenet_v2", "a network of this space has 5 parts joined by '|', got 9: '32:k3 | 16:k3 | 24:k3e6,k3e6,"),
    ],
)
def test_a_text_that_is_no_network_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        SMALL.parse(text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_width_that_two_parts_share_must_be_said_alike() -> None:
    space = named("mobilenet_v3_widths")
    with pytest.raises(ParseError, match=r"^stem.width must be 16 in this space, got '24'$"):
        space.parse(REFERENCES["mobilenet_v3_large"][1].replace("| 16:", "| 24:", 1))


# --- pictures, narrower spaces, settings


def test_graphs_are_chains_of_the_layers_that_are_there() -> None:
    graphs = SMALL.graphs(SMALL.parse(TEXT))
    assert [graph.name for graph in graphs] == [
        "separable, 8 channels",
        "block1, 16 channels",
        "block2, 24 channels",
    ]
    assert [graph.edges for graph in graphs] == [
        ((0, 1, "sep_conv_5x5"),),
        ((0, 1, "mbconv_3x3 e6 se"),),
        ((0, 1, "mbconv_5x5 e3"),),
    ]


def test_a_restricted_space_still_reads_and_writes() -> None:
    narrow = SMALL.restrict({"block2.layer2.layer": ["zero"], "block1.width": ["16"]})
    assert narrow.parse(TEXT)["block1.width"] == "16"
    for architecture in some(narrow):
        assert narrow.parse(narrow.format(architecture)) == architecture
        assert architecture["block2.layer2.layer"] == "zero"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": (1, 2)}, "space.blocks, layers and strides must be as many as each other, got 6, 2 and 6"),
        ({"layers": (0, 4, 4, 4, 4, 1)}, "space.layers must lie in 1..1000 each, got [0, 4, 4, 4, 4, 1]"),
        ({"strides": (3, 2, 2, 1, 2, 1)}, "space.strides must be 1 or 2 each, got [3, 2, 2, 1, 2, 1]"),
        ({"kernels": (3, 4)}, "space.kernels and stem_kernels must be odd, got [3, 4], [3]"),
        ({"kernels": (3, 3)}, "space.kernels must be one or more distinct values above 0, got [3, 3]"),
        ({"expansions": ()}, "space.expansions must be one or more distinct values above 0, got []"),
        ({"width_multipliers": (0,)}, "space.width_multipliers must be one or more distinct values above 0, got [0]"),
        ({"head": (1, 2, 3)}, "space.head must be one width or two, got [1, 2, 3]"),
        ({"squeeze": ("on", "on")}, "space.squeeze must be off, on or both, got ['on', 'on']"),
        ({"stem": 0, "stem_stride": 4}, "space.stem_stride must be 1 or 2, got 4"),
    ],
)
def test_settings_that_make_no_network_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError) as caught:
        Mobile(**settings)  # type: ignore[arg-type]
    assert message in caught.value.problems
