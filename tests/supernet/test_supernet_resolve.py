"""One definition, two networks: a path through the supernet is the network of its architecture."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from archloom.core.errors import CheckpointError
from archloom.families import build_network
from archloom.spaces import NONE, SPACES, Architecture, Darts, Decision, Nb201, SearchSpace
from archloom.supernet import Choice, EveryOption, Fixed, Only, Resolve, inherit, path_gates

CLASSES = 3
MINI = Nb201(nodes=3, cells_per_stage=1)
CELL_SPACES = [name for name, entry in SPACES.items() if entry.load() in (Darts, Nb201)]


def space_named(name: str, *, nodes: int = 4) -> SearchSpace:
    """A space of the catalogue with as few cells as have both kinds, and a normal one after a reduction."""
    kind, settings = SPACES[name].load(), SPACES[name].settings
    if kind is Nb201:
        return Nb201(**{**settings, "cells_per_stage": 1})
    blocks = min(1, settings.get("cells_per_block", 0))
    return Darts(**{**settings, "nodes": nodes, "cells": 4, "cells_per_block": blocks})


def build(space: SearchSpace, resolve: Resolve, *, channels: int = 4) -> nn.Module:
    return build_network(space, resolve, classes=CLASSES, colours=3, channels=channels).double()


def images(size: int) -> Tensor:
    return torch.randn(3, 3, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(size))


def covering(space: SearchSpace, *, without: str | None = None) -> Iterator[Architecture]:
    """Architectures in which, together, every decision takes each of its options once.

    Nodes of a searched cell may have more inputs here than an architecture of the space keeps: a network does not mind.
    """
    options = [[option for option in decision.options if option != without] for decision in space.decisions]
    for turn in range(max(len(each) for each in options)):
        yield Architecture(
            {
                decision.name: each[(position + turn) % len(each)]
                for position, (decision, each) in enumerate(zip(space.decisions, options, strict=True))
            }
        )


# --- the two networks agree


@pytest.mark.parametrize("name", CELL_SPACES)
def test_a_path_through_the_supernet_equals_the_standalone_network(name: str) -> None:
    space = space_named(name)
    supernet = build(space, EveryOption())
    # without `none` nothing is cut off, so that every operation of every edge is seen in the result
    connected = list(covering(space, without=NONE))
    some_cut = list(covering(space))[:2]
    chosen = {(decision, option) for architecture in connected for decision, option in architecture.items()}
    assert chosen == {(d.name, option) for d in space.decisions for option in d.options if option != NONE}
    results = []
    architectures = dict.fromkeys([*connected, *some_cut, space.sample(random.Random(5))])
    for number, architecture in enumerate(architectures):
        x = images(9 if number % 2 else 12)
        alone = build(space, Only(architecture))
        inherit(alone, supernet)
        assert supernet.training
        assert alone.training
        with torch.no_grad():
            results.append(supernet(x, path_gates(space, architecture)))
            torch.testing.assert_close(alone(x), results[-1], rtol=0, atol=1e-10)
    for first, second in zip(results, results[2:], strict=False):  # of one size; constants would show nothing
        assert (first - second).abs().max() > 1e-3


@pytest.mark.parametrize("size", [12, 9])
@pytest.mark.parametrize("name", CELL_SPACES)
def test_gradients_of_a_path_equal_those_of_the_standalone_network(name: str, size: int) -> None:
    space = space_named(name, nodes=2)
    architecture = space.sample(random.Random(size))
    supernet, alone = build(space, EveryOption()), build(space, Only(architecture, affine=False))
    inherit(alone, supernet)
    supernet(images(size), path_gates(space, architecture)).square().sum().backward()
    alone(images(size)).square().sum().backward()
    shared = dict(supernet.named_parameters())
    for parameter_name, parameter in alone.named_parameters():
        expected = shared.pop(parameter_name).grad
        if parameter.grad is None or expected is None:  # a node that leads nowhere
            assert parameter.grad is expected
        else:
            torch.testing.assert_close(parameter.grad, expected, rtol=1e-8, atol=1e-10)
    assert all(parameter.grad is None for parameter in shared.values())


@pytest.mark.parametrize("size", [12, 9])
@pytest.mark.parametrize("name", ["nb201", "darts", "darts_gdas", "darts_frc"])
def test_an_architecture_that_connects_nothing_still_runs(name: str, size: int) -> None:
    space = space_named(name, nodes=2)
    nothing = Architecture({decision.name: NONE for decision in space.decisions})
    with torch.no_grad():
        from_path = build(space, EveryOption())(images(size), path_gates(space, nothing))
        alone = build(space, Only(nothing))(images(size))
    for logits in (from_path, alone):
        assert logits.shape == (3, CLASSES)
        assert logits.isfinite().all()
    if name != "darts_frc":  # there the fixed reduction cells still read what comes before
        torch.testing.assert_close(alone, alone[:1].expand_as(alone))
        torch.testing.assert_close(from_path, from_path[:1].expand_as(from_path))


@pytest.mark.parametrize("name", CELL_SPACES)
def test_networks_run_on_whatever_device_their_images_are_on(name: str) -> None:
    """On the meta device any tensor made elsewhere, zeros included, would be an error."""
    space = space_named(name, nodes=2)
    sampled = space.sample(random.Random(1))
    nothing = Architecture({decision.name: NONE for decision in space.decisions})
    with torch.device("meta"):
        supernet = build(space, EveryOption())
        networks = [build(space, Only(sampled)), build(space, Only(nothing))]
        x = torch.zeros(2, 3, 9, 9, dtype=torch.float64)
    results = [network(x) for network in networks]
    results += [supernet(x, path_gates(space, architecture)) for architecture in (sampled, nothing)]
    for logits in results:
        assert logits.device.type == "meta"
        assert logits.shape == (2, CLASSES)


# --- what each resolve builds


def test_every_option_but_none_gets_a_module() -> None:
    decision = Decision("edge", ("a", NONE, "b"))
    made = []
    choice = EveryOption().operation(decision, lambda option: made.append(option) or nn.Identity())
    assert isinstance(choice, Choice)
    assert choice.decision is decision
    assert made == list(choice.candidates) == ["a", "b"]


@pytest.mark.parametrize(("option", "expected"), [("b", ["b"]), (NONE, [])])
def test_only_the_option_of_the_architecture_gets_a_module(option: str, expected: list[str]) -> None:
    decision = Decision("edge", ("a", NONE, "b"))
    made = []
    fixed = Only(Architecture({"edge": option})).operation(decision, lambda name: made.append(name) or nn.Identity())
    assert isinstance(fixed, Fixed)
    assert (fixed.option, fixed.decision) == (option, decision)
    assert made == list(fixed.candidates) == expected


@pytest.mark.parametrize("name", ["nb201", "darts", "darts_frc"])
def test_the_supernet_normalizes_by_the_batch_alone_and_the_standalone_network_learns_to(name: str) -> None:
    space = space_named(name, nodes=2)
    shared = [module for module in build(space, EveryOption()).modules() if isinstance(module, nn.BatchNorm2d)]
    assert shared
    assert not any(module.affine or module.track_running_stats for module in shared)
    assert not any(list(module.parameters()) or list(module.buffers()) for module in shared)
    alone = build(space, Only(next(covering(space, without=NONE))))
    own = [module for module in alone.modules() if isinstance(module, nn.BatchNorm2d)]
    assert own
    assert all(module.track_running_stats for module in own)
    assert any(module.affine for module in own)


@pytest.mark.parametrize("resolve", [EveryOption(affine=True), Only(Architecture({}))])
def test_what_is_not_to_be_scaled_never_is(resolve: Resolve) -> None:
    assert list(resolve.normalize(4, scaled=False).parameters()) == []
    assert [parameter.numel() for parameter in resolve.normalize(4).parameters()] == [4, 4]


@pytest.mark.parametrize("resolve", [EveryOption(running_statistics=True), Only(Architecture({}), affine=False)])
def test_statistics_may_be_kept_without_a_scale(resolve: Resolve) -> None:
    module = resolve.normalize(4)
    assert list(module.parameters()) == []
    assert {name for name, _ in module.named_buffers()} == {"running_mean", "running_var", "num_batches_tracked"}


@pytest.mark.parametrize("resolve", [EveryOption(), Only(Architecture({}), running_statistics=False)])
def test_statistics_may_be_left_out(resolve: Resolve) -> None:
    assert list(resolve.normalize(4).buffers()) == []


@pytest.mark.parametrize("operation", ["max_pool_3x3", "avg_pool_3x3"])
def test_pools_have_no_parameters_in_either_network(operation: str) -> None:
    space = Darts(operations=(operation,), edges="fixed", cells=3)
    only_pools = Architecture({decision.name: operation for decision in space.decisions})
    for network in (build(space, EveryOption(affine=True)), build(space, Only(only_pools))):
        inside = [name for name, _ in network.named_parameters() if ".candidates." in name]
        assert inside == []


# --- inheriting weights


def test_inherited_weights_are_copies_of_the_shared_ones() -> None:
    supernet = build(MINI, EveryOption())
    architecture = MINI.parse("|nor_conv_3x3~0|+|nor_conv_1x1~0|none~1|")
    alone = build(MINI, Only(architecture))
    inherit(alone, supernet)
    shared, own = supernet.state_dict(), alone.state_dict()
    copied = [name for name in own if name in shared]
    assert any("candidates.nor_conv_3x3" in name for name in copied)
    for name in copied:
        assert torch.equal(own[name], shared[name])
        assert own[name].data_ptr() != shared[name].data_ptr()


def test_scales_that_the_supernet_lacks_keep_their_neutral_start() -> None:
    alone = build(MINI, Only(MINI.sample(random.Random(0))))
    inherit(alone, build(MINI, EveryOption()))
    norms = [module for module in alone.modules() if isinstance(module, nn.BatchNorm2d)]
    assert all((module.weight == 1).all() and (module.bias == 0).all() for module in norms)


def test_scales_that_the_supernet_has_are_inherited() -> None:
    supernet = build(MINI, EveryOption(affine=True, running_statistics=True))
    with torch.no_grad():
        for parameter in supernet.parameters():
            parameter.uniform_(0.5, 1.5)
    supernet(images(9), path_gates(MINI, MINI.parse("|skip_connect~0|+|skip_connect~0|skip_connect~1|")))
    alone = build(MINI, Only(MINI.parse("|nor_conv_3x3~0|+|skip_connect~0|none~1|")))
    inherit(alone, supernet)
    for name, value in alone.state_dict().items():
        assert torch.equal(value, supernet.state_dict()[name])


@pytest.mark.parametrize(
    ("space", "channels", "named"),
    [
        (Nb201(nodes=3, cells_per_stage=2), 4, "blocks.0.dag.edges.0->3.candidates.nor_conv_3x3.1.weight"),
        (Nb201(cells_per_stage=1), 4, "blocks.1.dag.edges.0->1.candidates.nor_conv_3x3.1.weight"),
        (
            Nb201(cells_per_stage=2, operations=("none", "nor_conv_1x1")),
            4,
            "blocks.0.dag.edges.0->1.candidates.nor_conv_3x3.1.weight",
        ),
        (Darts(cells=3), 4, "stem.0.weight"),
        (Nb201(cells_per_stage=2), 8, "stem.0.weight"),
    ],
    ids=["nodes", "depth", "operations", "family", "width"],
)
def test_weights_of_a_foreign_supernet_are_refused(space: SearchSpace, channels: int, named: str) -> None:
    own = Nb201(cells_per_stage=2)
    alone = build(own, Only(Architecture({decision.name: "nor_conv_3x3" for decision in own.decisions})))
    before = {name: value.clone() for name, value in alone.state_dict().items()}
    with pytest.raises(CheckpointError) as caught:
        inherit(alone, build(space, EveryOption(), channels=channels))
    assert f"'{named}'" in str(caught.value)
    assert str(caught.value).endswith("it was built for another space or width")
    assert "\n" not in str(caught.value)
    assert all(torch.equal(value, before[name]) for name, value in alone.state_dict().items())
