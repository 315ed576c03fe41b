"""A network of DARTS cells in one compiled call, against its modules in double precision."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import cycle, islice

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.data.loader import Batch
from archloom.families import build_network
from archloom.fast import use_kernels
from archloom.fast.compiled_network import list_segments
from archloom.fast.network_plan import NetworkPlanner, UnplannableError
from archloom.searches.short_training import build_standalone
from archloom.spaces import SPACES, Darts
from archloom.supernet import Only, SharedWeights, WeightSettings
from archloom.tasks import ImageShape
from compiled_networks import Counter, agree, evaluate, exact_of, levels, loss_of, needs_library, results_agree

SPACE = Darts(cells=3)  # one normal cell and two that halve the resolution
OPERATIONS = (
    "sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5", "max_pool_3x3", "avg_pool_3x3", "skip_connect",
)  # fmt: skip
EDGES = ((0, 1), (0, 2), (1, 3), (2, 4))  # what each state of a cell reads
SHAPES = [(16, 16, 16), (8, 8, 32), (3, 8, 16), (24, 8, 8), (5, 10, 12), (17, 9, 7)]  # images, height, width


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(2)


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    return Counter(monkeypatch)


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def genotype(*operations: str) -> str:
    """A cell whose eight edges take these operations in turn, the same for both kinds of cells."""
    options = islice(cycle(operations), 8)
    pairs = [(option, source) for sources in EDGES for source, option in zip(sources, options, strict=False)]
    return f"Genotype(normal={pairs}, normal_concat=[2, 3, 4, 5], reduce={pairs}, reduce_concat=[2, 3, 4, 5])"


ARCHITECTURES = {
    **{operation: genotype(operation) for operation in OPERATIONS},
    "all": genotype(*OPERATIONS),
    "states that nothing else reads": genotype("skip_connect", "sep_conv_3x3", "max_pool_3x3"),
}


def network_of(
    text: str = ARCHITECTURES["all"], channels: int = 4, *, space: Darts = SPACE, **settings: object
) -> nn.Module:
    """A network whose scales and shifts are no ones and zeros."""
    resolve = Only(space.parse(text), affine=True, running_statistics=True)
    made = build_network(space, resolve, classes=10, colours=3, channels=channels, **settings)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d) and module.affine:
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    return made.to(memory_format=torch.channels_last)


def batch_of(images: int = 8, height: int = 16, width: int = 16) -> Batch:
    return Batch(torch.randn(images, 3, height, width), torch.randint(10, (images,)))


# --- what it computes


@levels
@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_equals_the_modules(
    level: str, name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, counter: Counter
) -> None:
    monkeypatch.setenv("ARCHLOOM_KERNELS", level)
    network, batch = network_of(ARCHITECTURES[name]), batch_of(*shape)
    exact, modules = exact_of(network, batch), evaluate(copy.deepcopy(network), batch, "plain")
    results_agree(evaluate(network, batch, "auto"), exact, modules=modules)
    assert counter.runs == 1


@needs_library
@pytest.mark.parametrize("images", [8, 16])
def test_pools_without_normalisation(images: int, counter: Counter) -> None:
    text = genotype("max_pool_3x3", "sep_conv_3x3", "avg_pool_3x3", "skip_connect")
    network, batch = network_of(text, normalized_pools=False), batch_of(images)
    exact = exact_of(network, batch)
    results_agree(evaluate(network, batch, "auto"), exact)
    assert counter.runs == 1


@needs_library
def test_many_channels_and_sums_in_chunks(counter: Counter) -> None:
    network, batch = network_of(channels=13), batch_of(20, 24, 24)
    exact = exact_of(network, batch)
    results_agree(evaluate(network, batch, "auto"), exact)
    assert counter.runs == 1


@needs_library
@pytest.mark.parametrize("images", [8, 16])
def test_auxiliary_head(images: int, counter: Counter) -> None:
    network, batch = network_of(auxiliary=True), batch_of(images)
    exact = exact_of(network, batch)
    results_agree(evaluate(network, batch, "auto"), exact)
    assert counter.runs == 1


@needs_library
@pytest.mark.parametrize("kept", ["logits", "auxiliary"])
def test_one_of_two_heads_alone(kept: str) -> None:
    network, batch = network_of(auxiliary=True), batch_of()
    other, double = copy.deepcopy(network).double(), batch.inputs.double()
    found, exact = ({}, {})
    for module, inputs, choice, to in ((network, batch.inputs, "auto", found), (other, double, "plain", exact)):
        with use_kernels(choice):
            loss = F.cross_entropy(getattr(module(inputs), kept), batch.labels)
        named = dict(module.named_parameters())
        to.update(zip(named, torch.autograd.grad(loss, list(named.values()), allow_unused=True), strict=True))
    for name, gradient in exact.items():
        if gradient is None:  # a part that only the other head depends on
            assert found[name] is None or not found[name].any(), name
        else:
            agree(found[name], gradient)


@needs_library
def test_drop_path_takes_away_the_same_images(monkeypatch: pytest.MonkeyPatch, counter: Counter) -> None:
    dropout = F.dropout
    monkeypatch.setattr(F, "dropout", lambda x, rate: dropout(x.float(), rate).to(x.dtype))  # double draws the same
    for images in (8, 16):
        torch.manual_seed(0)  # no sign that rounding flips
        network, batch = network_of(drop_path=0.4), batch_of(images)
        torch.manual_seed(3)
        exact = exact_of(network, batch)
        after = torch.get_rng_state()
        torch.manual_seed(3)
        found = evaluate(network, batch, "auto")
        assert torch.equal(torch.get_rng_state(), after)
        results_agree(found, exact)
    assert counter.runs == 2


@needs_library
def test_without_gradient_the_result_is_the_same(counter: Counter) -> None:
    network, images = network_of(auxiliary=True), batch_of().inputs
    other = copy.deepcopy(network)
    with torch.no_grad():
        alone = other(images)
    both = network(images)
    assert torch.equal(alone.logits, both.logits)
    assert torch.equal(alone.auxiliary, both.auxiliary)
    assert counter.runs == 2
    for one, two in zip(network.buffers(), other.buffers(), strict=True):
        assert torch.equal(one, two)


@needs_library
def test_nan_stays_visible() -> None:
    for operation in ("sep_conv_3x3", "max_pool_3x3"):
        network, batch = network_of(ARCHITECTURES[operation]), batch_of()
        batch.inputs[0, 0, 0, 0] = torch.nan
        assert evaluate(network, batch, "auto").loss.isnan()


# --- how images are cut


@pytest.mark.parametrize(
    ("images", "lanes", "expected"),
    [(16, 16, [1, 2, 4]), (8, 16, [2, 4, 1]), (4, 16, [4, 2, 1]), (24, 16, [2, 4, 1]), (8, 8, [1, 2, 4])],
)
def test_images_are_cut_where_lanes_would_be_empty(images: int, lanes: int, expected: list[int]) -> None:
    assert list_segments(images, lanes) == expected


def test_segments_need_even_widths() -> None:
    network = network_of(ARCHITECTURES["sep_conv_3x3"])
    for width, fits in ((16, True), (12, False), (15, False)):  # a quarter of 12 is odd where it is halved
        try:
            planner = NetworkPlanner((4, 3, 16, width), 16, 4)
            planner.finish(network.describe(planner), keeps=True, rectified=False)  # type: ignore[operator]
        except UnplannableError:
            assert not fits
        else:
            assert fits


@levels
@pytest.mark.parametrize("images", [8, 33])
def test_results_do_not_depend_on_threads(
    level: str, images: int, monkeypatch: pytest.MonkeyPatch, set_threads: Callable[[int], None]
) -> None:
    monkeypatch.setenv("ARCHLOOM_KERNELS", level)
    network, inputs = network_of(channels=8), batch_of(images, 32, 32).inputs
    outcomes = []
    for threads in (1, 2, 3):
        set_threads(threads)
        means = network.compiled.run(inputs).means  # type: ignore[operator, union-attr]
        found = torch.autograd.grad(means.square().sum(), list(network.parameters()), allow_unused=True)
        outcomes.append([means.detach(), *(gradient for gradient in found if gradient is not None)])
    for outcome in outcomes[1:]:
        assert all(torch.equal(one, other) for one, other in zip(outcome, outcomes[0], strict=True))


# --- training


def weights_of() -> SharedWeights:
    return build_standalone(
        SPACE,
        SPACE.parse(ARCHITECTURES["all"]),
        seed=0,
        place=lambda network: network.to(memory_format=torch.channels_last),
        network={"channels": 4},
        weights=WeightSettings(learning_rate=0.01),
        shape=ImageShape(10, 3),
    )


def train(batches: list[Batch], choice: str = "auto") -> dict[str, Tensor]:
    weights = weights_of()
    with use_kernels(choice):  # type: ignore[arg-type]
        for batch in batches:
            weights.fit(batch, {})
    return {name: value.detach() for name, value in weights.parameters.items()}


@needs_library
def test_several_steps_stay_close_to_the_modules(counter: Counter) -> None:
    batches = [batch_of(16) for _ in range(3)]
    before, compiled = train([]), train(batches)
    assert counter.runs == 3
    plain = train(batches, "plain")
    assert counter.runs == 3
    for name, parameter in compiled.items():
        moved = float((plain[name] - before[name]).abs().max())
        assert float((parameter - plain[name]).abs().max()) <= 1e-2 * moved + 1e-7, name


@needs_library
def test_trainings_are_equal_to_the_bit() -> None:
    batches = [batch_of(8) for _ in range(3)]
    one, other = train(batches), train(batches)
    assert all(torch.equal(value, other[name]) for name, value in one.items())


# --- where modules run


def fixed_reduction() -> nn.Module:
    entry = SPACES.find("darts_frc")
    space = entry.load()(**{**entry.settings, "cells": 3, "cells_per_block": 0})
    return network_of(ARCHITECTURES["all"].split(", reduce=")[0] + ")", space=space)


MODULES_RUN: dict[str, Callable[[], nn.Module]] = {
    "evaluation mode": lambda: network_of().eval(),
    "double precision": lambda: network_of().double(),
    "fixed reductions": fixed_reduction,
    "stem of large images": lambda: network_of(stem="imagenet"),
}


@pytest.mark.parametrize("name", MODULES_RUN)
def test_modules_run_for(name: str, counter: Counter) -> None:
    network = MODULES_RUN[name]()
    images = batch_of(4, 64, 64).inputs.to(next(network.parameters()).dtype)
    assert loss_of(network(images), torch.zeros(4, dtype=torch.long)).isfinite()
    assert counter.runs == 0


def test_modules_run_where_a_state_is_zero(counter: Counter) -> None:
    network = network_of()
    edge = network.get_submodule("cells.0.dag.edges.0->2")
    other = network.get_submodule("cells.0.dag.edges.1->2")
    for one in (edge, other):
        one.candidates.clear()  # type: ignore[union-attr, operator]
        one.option = "none"  # type: ignore[assignment]
    network(batch_of().inputs)
    assert counter.runs == 0
