"""A network of one architecture in one compiled call, against its modules in double precision."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from archloom.data.loader import Batch
from archloom.families import build_network
from archloom.fast import KernelChoice, use_kernels
from archloom.searches.short_training import build_standalone
from archloom.spaces import Nb201
from archloom.supernet import EveryOption, Only, SharedWeights, WeightSettings, path_gates
from archloom.tasks import ImageShape
from compiled_networks import Counter, agree, evaluate, exact_of, levels, needs_library, results_agree

SPACE = Nb201(cells_per_stage=1)
RESIDUAL = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_1x1~2|"
ARCHITECTURES = {
    "residual": RESIDUAL,
    "1x1": "|nor_conv_1x1~0|+|none~0|nor_conv_1x1~1|+|none~0|nor_conv_1x1~1|skip_connect~2|",
    "pools": "|avg_pool_3x3~0|+|avg_pool_3x3~0|nor_conv_3x3~1|+|avg_pool_3x3~0|avg_pool_3x3~1|skip_connect~2|",
    "skips": "|skip_connect~0|+|skip_connect~0|skip_connect~1|+|skip_connect~0|skip_connect~1|skip_connect~2|",
    "skip and pool of one state": "|skip_connect~0|+|none~0|none~1|+|skip_connect~0|avg_pool_3x3~1|none~2|",
    "convolutions of zeros": "|none~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_1x1~1|nor_conv_3x3~2|",
    "a node that nothing reads": "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_1x1~0|none~1|none~2|",
    "zeros alone": "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|",
}
SHAPES = [
    (32, 16, 16, 8),
    (5, 7, 9, 6),
    (17, 8, 5, 5),
    (4, 8, 8, 16),
    (3, 8, 12, 24),
    (6, 8, 8, 13),
]  # images, sides, channels


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def network_of(
    text: str = RESIDUAL, channels: int = 8, *, affine: bool = True, tracked: bool = True, **settings: object
) -> nn.Module:
    """A network whose scales and shifts are no ones and zeros."""
    resolve = Only(SPACE.parse(text), affine=affine, running_statistics=tracked)
    made = build_network(SPACE, resolve, classes=10, colours=3, channels=channels, **settings)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d) and affine:
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    return made.to(memory_format=torch.channels_last)


def batch_of(images: int = 8, height: int = 8, width: int = 8) -> Batch:
    return Batch(torch.randn(images, 3, height, width), torch.randint(10, (images,)))


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    return Counter(monkeypatch)


# --- what it computes


@levels
@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_equals_the_modules(
    level: str, name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, counter: Counter
) -> None:
    monkeypatch.setenv("ARCHLOOM_KERNELS", level)
    *size, channels = shape
    network, batch = network_of(ARCHITECTURES[name], channels), batch_of(*size)
    exact = exact_of(network, batch)
    results_agree(evaluate(network, batch, "auto"), exact)
    assert counter.runs == 1


@needs_library
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("tracked", [True, False])
def test_normalisations_with_and_without_parts(affine: bool, tracked: bool, counter: Counter) -> None:
    network, batch = network_of(affine=affine, tracked=tracked), batch_of()
    exact = exact_of(network, batch)
    results_agree(evaluate(network, batch, "auto"), exact)
    assert counter.runs == 1


@levels
def test_evaluation_uses_running_statistics(level: str, monkeypatch: pytest.MonkeyPatch, counter: Counter) -> None:
    monkeypatch.setenv("ARCHLOOM_KERNELS", level)
    network, images = network_of(drop_path=0.5), batch_of(9).inputs
    for _ in range(3):
        network(batch_of(8).inputs)  # moves running statistics
    state, before = copy.deepcopy(network.state_dict()), counter.runs
    network.eval()
    with torch.no_grad():
        found = network(images)
        with use_kernels("plain"):
            wanted = network(images)
    assert counter.runs == before + 1
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())


def test_modules_evaluate_few_images(counter: Counter) -> None:
    with torch.no_grad():
        network_of().eval()(batch_of(1).inputs)
    assert counter.runs == 0


class Recorder(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


def test_modules_run_where_functions_are_recorded(counter: Counter) -> None:
    network, images = network_of().eval(), batch_of(16).inputs
    with torch.no_grad(), Recorder():
        network(images)
    assert counter.runs == 0


@pytest.mark.parametrize("part", ["one normalisation trains", "no running statistics"])
def test_evaluation_by_statistics_of_the_batch_runs_the_modules(part: str, counter: Counter) -> None:
    network = network_of(tracked=part != "no running statistics").eval()
    if part == "one normalisation trains":
        next(module for module in network.modules() if isinstance(module, nn.BatchNorm2d)).train()
    with torch.no_grad():
        network(batch_of().inputs)
    assert counter.runs == 0


@needs_library
def test_images_and_weights_in_any_layout() -> None:
    network, batch = network_of(), batch_of()
    last = Batch(batch.inputs.contiguous(memory_format=torch.channels_last), batch.labels)
    exact = exact_of(network, batch)
    results_agree(evaluate(copy.deepcopy(network), last, "auto"), exact)
    results_agree(evaluate(copy.deepcopy(network).to(memory_format=torch.contiguous_format), batch, "auto"), exact)


@needs_library
def test_large_maps_are_summed_in_chunks() -> None:
    torch.manual_seed(2)  # rounding flips no sign before ReLU
    network, batch = network_of(channels=16), batch_of(32, 32, 32)
    exact = exact_of(network, batch)
    results_agree(evaluate(network, batch, "auto"), exact)


def test_the_comparison_sees_a_small_error() -> None:
    network, batch = network_of(), batch_of()
    exact = exact_of(network, batch)
    found = evaluate(network, batch, "plain")
    results_agree(found, exact)
    gradient = found.gradients["blocks.0.dag.edges.0->1.candidates.nor_conv_3x3.1.weight"]
    assert gradient is not None
    gradient[0] *= 1.001
    with pytest.raises(AssertionError):
        results_agree(found, exact)


@needs_library
def test_statistics_of_values_far_from_zero() -> None:
    network, batch = network_of("|skip_connect~0|+|none~0|none~1|+|none~0|skip_connect~1|none~2|"), batch_of()
    network.get_submodule("stem.1").bias.data.fill_(300.0)  # type: ignore[union-attr, operator]
    exact = exact_of(network, batch)
    found = evaluate(network, batch, "auto")
    for name in ("head.0.running_mean", "head.0.running_var"):
        agree(found.buffers[name], exact.buffers[name], size=1.0)


@needs_library
def test_nan_stays_visible() -> None:
    network, batch = network_of(), batch_of()
    batch.inputs[0, 0, 0, 0] = torch.nan
    assert evaluate(network, batch, "auto").loss.isnan()


# --- training


def weights_of(choice_seed: int = 0, **settings: object) -> SharedWeights:
    return build_standalone(
        SPACE,
        SPACE.parse(RESIDUAL),
        seed=choice_seed,
        place=lambda network: network.to(memory_format=torch.channels_last),
        network={"channels": 8, **settings},
        weights=WeightSettings(learning_rate=0.01),
        shape=ImageShape(10, 3),
    )


def train(weights: SharedWeights, batches: list[Batch], choice: KernelChoice = "auto") -> None:
    with use_kernels(choice):
        for batch in batches:
            weights.fit(batch, {})


def equal_states(one: SharedWeights, other: SharedWeights) -> bool:
    first, second = one.state_dict()["network"], other.state_dict()["network"]
    return all(torch.equal(first[name], second[name]) for name in first)


@needs_library
def test_several_steps_stay_close_to_the_modules(counter: Counter) -> None:
    batches = [batch_of(16) for _ in range(4)]
    compiled, plain = weights_of(), weights_of()
    train(compiled, batches)
    assert counter.runs == 4
    train(plain, batches, "plain")
    assert counter.runs == 4
    before = weights_of().parameters
    for name, parameter in compiled.parameters.items():
        moved = float((plain.parameters[name] - before[name]).detach().abs().max())
        assert float((parameter - plain.parameters[name]).detach().abs().max()) <= 2e-3 * moved + 1e-7, name


@needs_library
def test_trainings_are_equal_to_the_bit() -> None:
    batches = [batch_of(16) for _ in range(3)]
    one, other = weights_of(), weights_of()
    train(one, batches)
    train(other, batches)
    assert equal_states(one, other)


@levels
def test_results_do_not_depend_on_threads(
    level: str, monkeypatch: pytest.MonkeyPatch, set_threads: Callable[[int], None]
) -> None:
    monkeypatch.setenv("ARCHLOOM_KERNELS", level)
    network, images = network_of(), batch_of(33, 32, 32).inputs
    outcomes = []
    for threads in (1, 2, 3):
        set_threads(threads)
        features = network.compiled.run(images).means  # type: ignore[operator, union-attr]
        found = torch.autograd.grad(features.square().sum(), list(network.parameters()), allow_unused=True)
        outcomes.append([features.detach(), *(gradient for gradient in found if gradient is not None)])
    for outcome in outcomes[1:]:
        assert all(torch.equal(one, other) for one, other in zip(outcome, outcomes[0], strict=True))


@needs_library
def test_resume_is_exact() -> None:
    batches = [batch_of(16) for _ in range(4)]
    whole, first, second = weights_of(), weights_of(), weights_of(1)
    train(whole, batches)
    train(first, batches[:2])
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    train(second, batches[2:])
    assert equal_states(whole, second)


@needs_library
def test_without_gradient_the_result_is_the_same(counter: Counter) -> None:
    network, images = network_of(), batch_of().inputs
    other = copy.deepcopy(network)
    with torch.no_grad():
        alone = other(images)
    assert torch.equal(alone, network(images))
    assert counter.runs == 2
    for one, two in zip(network.buffers(), other.buffers(), strict=True):
        assert torch.equal(one, two)


@needs_library
def test_runs_may_overlap() -> None:
    network, one, two = network_of(tracked=False), batch_of(), batch_of()
    parameters = list(network.parameters())
    alone = [evaluate(network, batch, "auto").gradients for batch in (one, two)]
    losses = [F.cross_entropy(network(batch.inputs), batch.labels) for batch in (one, two)]
    for loss, expected in zip(losses, alone, strict=True):
        for found, gradient in zip(torch.autograd.grad(loss, parameters), expected.values(), strict=True):
            assert gradient is not None
            assert torch.equal(found, gradient)


@needs_library
def test_parameters_from_elsewhere(counter: Counter) -> None:
    network, batch = network_of(tracked=False), batch_of()
    others = {name: (1.5 * value).detach().requires_grad_() for name, value in network.named_parameters()}
    loss = F.cross_entropy(functional_call(network, others, (batch.inputs,)), batch.labels)
    found = torch.autograd.grad(loss, list(others.values()))
    assert counter.runs == 1
    network.load_state_dict({name: value.detach() for name, value in others.items()})
    for gradient, expected in zip(found, evaluate(network, batch, "auto").gradients.values(), strict=True):
        assert expected is not None
        assert torch.equal(gradient, expected)


@needs_library
def test_frozen_parameters_get_no_gradient() -> None:
    network, batch = network_of(), batch_of()
    frozen = dict(network.named_parameters())["stem.0.weight"].requires_grad_(False)
    F.cross_entropy(network(batch.inputs), batch.labels).backward()
    assert frozen.grad is None
    assert all(parameter.grad is not None for parameter in network.parameters() if parameter is not frozen)


@needs_library
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda network: pickle.loads(pickle.dumps(network))])  # noqa: S301
def test_copies_train_their_own_weights(duplicate: Callable[[nn.Module], nn.Module]) -> None:
    network, batch = network_of(), batch_of()
    network(batch.inputs)
    other = duplicate(network)
    for parameter in other.parameters():
        parameter.data.mul_(1.1)
    exact = exact_of(other, batch)
    results_agree(evaluate(other, batch, "auto"), exact)


# --- what it refuses


@needs_library
def test_one_backward_pass_only() -> None:
    network, batch = network_of(), batch_of()
    loss = F.cross_entropy(network(batch.inputs), batch.labels)
    parameters = list(network.parameters())
    torch.autograd.grad(loss, parameters, retain_graph=True)
    with pytest.raises(RuntimeError, match="one backward pass"):
        torch.autograd.grad(loss, parameters)


@needs_library
def test_no_second_derivative() -> None:
    network, batch = network_of(), batch_of()
    loss = F.cross_entropy(network(batch.inputs), batch.labels)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(loss, list(network.parameters()), create_graph=True)


@needs_library
def test_weights_changed_before_the_backward_pass_are_noticed() -> None:
    network, batch = network_of(), batch_of()
    loss = F.cross_entropy(network(batch.inputs), batch.labels)
    with torch.no_grad():
        network.get_parameter("stem.0.weight").mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


# --- where modules run


def watch_one_module(network: nn.Module) -> nn.Module:
    network.get_submodule("stem.0").register_forward_hook(lambda *_: None)
    return network


MODULES_RUN: dict[str, Callable[[], nn.Module]] = {
    "gradients in evaluation mode": lambda: network_of().eval(),
    "double precision": lambda: network_of().double(),
    "hooks": lambda: watch_one_module(network_of()),
    "auxiliary head": lambda: network_of(auxiliary=True),
    "supernet": lambda: build_network(SPACE, EveryOption(), classes=10, colours=3, channels=8),
}


@pytest.mark.parametrize("name", MODULES_RUN)
def test_modules_run_for(name: str, counter: Counter) -> None:
    network = MODULES_RUN[name]()
    images = batch_of().inputs.to(next(network.parameters()).dtype)
    network(images, path_gates(SPACE, SPACE.parse(RESIDUAL)) if name == "supernet" else None)
    assert counter.runs == 0


@pytest.mark.parametrize("choice", ["plain", "torch"])
def test_modules_run_with_other_kernels(choice: KernelChoice, counter: Counter) -> None:
    with use_kernels(choice):
        network_of()(batch_of().inputs)
    assert counter.runs == 0


def test_modules_run_where_gradients_of_images_or_memory_are_wanted(counter: Counter) -> None:
    network, images = network_of(), batch_of().inputs
    with use_kernels("auto", recompute=True):
        network(images)
    with torch.autocast("cpu", torch.bfloat16):
        network(images)
    network(images.requires_grad_())
    assert counter.runs == 0


def test_modules_run_without_a_library(monkeypatch: pytest.MonkeyPatch, counter: Counter) -> None:
    monkeypatch.setenv("ARCHLOOM_KERNELS", "off")
    network_of()(batch_of().inputs)
    assert counter.runs == 0


@needs_library
def test_one_value_per_channel_is_refused_as_by_modules() -> None:
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        network_of()(batch_of(1, 2, 2).inputs)
