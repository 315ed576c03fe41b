"""Fused cells against the modules they stand for: values, every gradient, and which gradients are computed at all."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from archloom import fast as kernels
from archloom.data.loader import Batch
from archloom.families import build_network
from archloom.fast import Kernels, Slot, Term, mixing
from archloom.fast import fused as fused_module
from archloom.fast.branch_groups import State, group_branches
from archloom.fast.branches import Dense
from archloom.spaces import SPACES, Darts, Decision, Nb201, SearchSpace
from archloom.supernet import (
    CLOSED,
    Choice,
    Curvature,
    Dag,
    EveryOption,
    Gate,
    Gates,
    SharedWeights,
    WeightSettings,
    path_gates,
)

SIZES = {"nb201": {"cells_per_stage": 1}, "s2": {"cells": 5}}
ROUNDING = 1e-9  # in double precision, where no sign of a rectifier flips between two right answers

MakeGates = Callable[[SearchSpace, dict[str, Tensor]], Gates]


def mixture(space: SearchSpace, logits: dict[str, Tensor]) -> Gates:
    return {name: Gate(weights=row.softmax(dim=0)) for name, row in logits.items()}


def weighted_path(space: SearchSpace, logits: dict[str, Tensor]) -> Gates:
    rng = random.Random(3)
    return {name: Gate(index=rng.randrange(len(row)), weights=row.softmax(dim=0)) for name, row in logits.items()}


def bare_path(space: SearchSpace, logits: dict[str, Tensor]) -> Gates:
    return path_gates(space, space.sample(random.Random(5)))


def path_with_offsets(space: SearchSpace, logits: dict[str, Tensor]) -> Gates:
    """As the public code of NAS-Bench-201 samples: options that do not run pass gradient as numbers."""
    gates = {}
    for number, (name, row) in enumerate(logits.items()):
        weights = row.softmax(dim=0)
        index = 1 + number % (len(row) - 1)  # never `none`, which comes first
        gates[name] = Gate(index=index, weights=weights, offset=0.1 * (weights.sum() - weights[index]))
    return gates


def some_of_each(space: SearchSpace, logits: dict[str, Tensor]) -> Gates:
    kinds = [mixture(space, logits), weighted_path(space, logits), dict.fromkeys(logits, CLOSED)]
    return {name: kinds[number % 3][name] for number, name in enumerate(logits)}


def build_space(name: str) -> SearchSpace:
    entry = SPACES[name]
    space: SearchSpace = entry.load()(**{**entry.settings, **SIZES.get(name, {})})
    return space


def make_logits(space: SearchSpace, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        decision.name: torch.randn(len(decision.options), generator=generator, dtype=dtype).requires_grad_()
        for decision in space.decisions
    }


def make_network(space: SearchSpace, channels: int = 4, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    return build_network(space, EveryOption(), classes=3, colours=2, channels=channels).to(dtype)


def make_batch(dtype: torch.dtype = torch.float64, size: int = 9) -> Batch:
    generator = torch.Generator().manual_seed(2)
    images = torch.randn(4, 2, size, size, generator=generator, dtype=dtype)
    return Batch(images, torch.randint(3, (4,), generator=generator))


def loss_and_gradients(
    network: nn.Module, batch: Batch, gates: Gates, logits: dict[str, Tensor]
) -> tuple[Tensor, list[Tensor | None]]:
    loss = SharedWeights(network).loss(batch, gates)
    found = torch.autograd.grad(loss, [*network.parameters(), *logits.values()], allow_unused=True)
    return loss.detach(), list(found)


@pytest.mark.parametrize("make_gates", [mixture, weighted_path, path_with_offsets, bare_path, some_of_each])
@pytest.mark.parametrize(
    "name", [name for name, entry in SPACES.items() if entry.load() in (Darts, Nb201) and name != "nb201_mini"]
)
@pytest.mark.parametrize(("choice", "few"), [("torch", mixing.FEW), ("torch", 0), ("auto", mixing.FEW)])
def test_values_and_all_gradients_are_those_of_the_modules(
    name: str, make_gates: MakeGates, choice: Any, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixing, "FEW", few)  # 0: small images are mixed as large ones are
    space = build_space(name)
    network, batch, logits = make_network(space), make_batch(), make_logits(space)
    with kernels.use_kernels("plain"):
        loss, gradients = loss_and_gradients(network, batch, make_gates(space, logits), logits)
    with kernels.use_kernels(choice):
        fused_loss, fused_gradients = loss_and_gradients(network, batch, make_gates(space, logits), logits)
    torch.testing.assert_close(fused_loss, loss, rtol=0, atol=ROUNDING)
    weights = len(list(network.parameters()))
    assert [g is None for g in fused_gradients[:weights]] == [g is None for g in gradients[:weights]]  # rest in both
    for fused, plain in zip(fused_gradients, gradients, strict=True):
        if plain is None:
            assert fused is None or not fused.any()
        else:
            assert fused is not None
            torch.testing.assert_close(fused, plain, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("make_gates", [mixture, weighted_path])
@pytest.mark.parametrize("name", ["nb201", "darts"])
@pytest.mark.parametrize("channels", [4, 8, 16])
def test_single_precision_is_as_close_to_the_truth_as_the_modules_are(
    name: str, make_gates: MakeGates, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both flip some rectifier signs, so each is measured against double precision."""
    space = build_space(name)
    exact, logits = make_network(space, channels), make_logits(space)
    with kernels.use_kernels("plain"):
        _, truth = loss_and_gradients(exact, make_batch(size=16), make_gates(space, logits), logits)
    single = make_network(space, channels, torch.float32).to(memory_format=torch.channels_last)
    own = make_logits(space, torch.float64)
    own = {name: row.detach().float().requires_grad_() for name, row in own.items()}
    distances, few = {}, mixing.FEW
    for kind, choice in {"plain": "plain", "torch": "torch", "rows": "torch", "auto": "auto"}.items():
        monkeypatch.setattr(mixing, "FEW", 0 if kind == "rows" else few)
        with kernels.use_kernels(choice):
            _, found = loss_and_gradients(single, make_batch(torch.float32, size=16), make_gates(space, own), own)
        distances[kind] = max(_distance(f, t) for f, t in zip(found, truth, strict=True) if f is not None)
    assert max(distances.values()) < 3 * distances["plain"] + 1e-4


def _distance(found: Tensor, truth: Tensor | None) -> float:
    assert truth is not None
    return float((found.double() - truth).norm() / (truth.norm() + 1e-3))


# --- nothing unasked for


class Recording(Kernels):
    """Kernels that note what they were asked for."""

    def __init__(self) -> None:
        self.depthwise_calls: list[int] = []
        self.weights_wanted: list[bool] = []
        self.coefficients_wanted: list[bool] = []
        self.slots: list[bool] = []

    def depthwise(self, term: Term, weights: Sequence[Tensor], geometry: Any, *, out: Tensor | None = None) -> Tensor:
        self.depthwise_calls.append(len(weights))
        return super().depthwise(term, weights, geometry, out=out)

    def depthwise_backward(
        self, gradients: Tensor, term: Term, weights: Any, geometry: Any, slot: Slot | None, by_weights: Any = None
    ) -> None:
        self.weights_wanted.append(by_weights is not None)
        self.slots.append(slot is not None)
        super().depthwise_backward(gradients, term, weights, geometry, slot, by_weights)

    def mix_backward(self, gradient: Tensor, terms: Any, weights: Tensor, slots: Any, **wanted: bool) -> Tensor | None:
        self.coefficients_wanted.append(wanted["weights_wanted"])
        return super().mix_backward(gradient, terms, weights, slots, **wanted)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recording:
    recording = Recording()
    monkeypatch.setattr("archloom.supernet.choice.current_kernels", lambda: recording)
    return recording


@pytest.fixture
def darts() -> tuple[SearchSpace, SharedWeights, Batch, dict[str, Tensor]]:
    space = Darts(cells=2)
    return space, SharedWeights(make_network(space)), make_batch(), make_logits(space)


def test_an_architecture_gradient_leaves_the_weights_alone(recorder: Recording, darts: Any) -> None:
    space, weights, batch, logits = darts
    loss = weights.loss(batch, mixture(space, logits))
    weights.gradient(loss, of=next(iter(logits.values())))
    assert recorder.weights_wanted
    assert not any(recorder.weights_wanted)
    assert all(recorder.coefficients_wanted)


def test_nor_does_it_go_back_to_the_stem(recorder: Recording, darts: Any) -> None:
    """What comes before the first cell hangs on no gate: nobody asks for gradients by the cell's inputs there."""
    space, weights, batch, logits = darts
    loss = weights.loss(batch, mixture(space, logits))
    weights.gradient(loss, of=next(iter(logits.values())))
    only_gates = len(recorder.slots)
    torch.autograd.grad(weights.loss(batch, mixture(space, logits)), list(weights.parameters.values()))
    assert only_gates < len(recorder.slots) - only_gates


def test_a_weight_step_leaves_the_gates_alone(recorder: Recording, darts: Any) -> None:
    space, weights, batch, logits = darts
    weights.fit(batch, mixture(space, logits))
    assert all(recorder.weights_wanted)
    assert not any(recorder.coefficients_wanted)


def test_gradients_by_both_at_other_weights_are_complete(darts: Any) -> None:
    space, weights, batch, logits = darts
    found = []
    for choice in ("plain", "torch"):
        with kernels.use_kernels(choice):
            moved = weights.virtual_step(batch, mixture(space, logits))
            loss = weights.loss(batch, mixture(space, logits), parameters=moved)
            found.append(torch.autograd.grad(loss, [*moved.values(), *logits.values()]))
    for plain, fused in zip(*found, strict=True):
        torch.testing.assert_close(fused, plain, rtol=ROUNDING, atol=ROUNDING)


def test_branches_from_one_state_are_convolved_in_one_call(recorder: Recording, darts: Any) -> None:
    space, weights, batch, logits = darts
    weights.score(batch, mixture(space, logits))
    assert max(recorder.depthwise_calls) == 4 * space.nodes  # four operations to each node, from an input


def cell(*edges: tuple[int, int], outputs: Sequence[int]) -> Dag:
    decisions = {edge: Decision(f"{edge[0]}->{edge[1]}", ("none", "skip", "conv")) for edge in edges}
    resolve = EveryOption()

    def make(option: str) -> nn.Module:
        if option == "skip":
            return nn.Identity()
        convolution = nn.Conv2d(2, 2, 3, padding=1, bias=False)
        return nn.Sequential(nn.ReLU(), convolution, resolve.normalize(2))

    choices = {edge: resolve.operation(decision, make) for edge, decision in decisions.items()}
    return Dag(choices, dict.fromkeys(edges, 1), outputs=outputs).double()


def opened(**options: str) -> Gates:
    return {name: Gate(index=["none", "skip", "conv"].index(option)) for name, option in options.items()}


def edges(text: str) -> Gates:
    """Gates from "0->1 conv, 1->2 skip"."""
    return opened(**dict(part.split() for part in text.split(", ")))


@pytest.mark.parametrize(
    ("gates", "frozen"),
    [
        ("0->1 conv, 0->2 conv, 1->2 none", ["0->1"]),  # nothing reads state 1
        ("0->1 none, 0->2 conv, 1->2 conv", ["1->2"]),  # state 1 is zero
        ("0->1 conv, 0->2 skip, 1->2 conv", []),
        ("0->1 none, 0->2 none, 1->2 conv", ["1->2"]),  # all is zero
    ],
)
@pytest.mark.parametrize("choice", ["plain", "torch"])
def test_dead_ends_and_zeros_do_not_run(gates: str, frozen: list[str], choice: Any) -> None:
    dag = cell((0, 1), (0, 2), (1, 2), outputs=[2])
    image = torch.randn(2, 2, 4, 4, dtype=torch.float64, requires_grad=True)
    with kernels.use_kernels(choice):
        (result,) = dag([image], edges(gates))
    weights = {edge: dag.edges[edge].candidates["conv"][1].weight for edge in dag.edges}
    if not result.requires_grad:
        assert torch.equal(result, torch.zeros_like(result))
        return
    found = dict(
        zip(weights, torch.autograd.grad(result.sum(), list(weights.values()), allow_unused=True), strict=True)
    )
    active = [part.split()[0] for part in gates.split(", ") if part.endswith("conv")]
    assert [edge for edge in active if found[edge] is None] == frozen


def test_a_state_read_by_nobody_is_still_returned_if_asked_for() -> None:
    dag = cell((0, 1), (0, 2), (1, 2), outputs=[0, 1, 2])
    image = torch.randn(2, 2, 4, 4, dtype=torch.float64)
    gates = edges("0->1 skip, 0->2 none, 1->2 none")
    results = {}
    for choice in ("plain", "torch"):
        with kernels.use_kernels(choice):
            results[choice] = dag([image], gates)
    for plain, fused in zip(results["plain"], results["torch"], strict=True):
        assert torch.equal(plain, fused)
    assert torch.equal(results["torch"][1], image)
    assert torch.equal(results["torch"][2], torch.zeros_like(image))


# --- candidates of all kinds


class Mirrored(nn.Module):
    """Parts that nothing is known of, and a weight that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.unused = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x.flip(3)


class Constant(nn.Module):
    """Makes nothing of its image."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.ones_like(x)


def strided(kernel: int) -> nn.Module:
    convolution = nn.Conv2d(2, 2, kernel, stride=2, padding=kernel // 2, bias=False)
    return nn.Sequential(nn.ReLU(), convolution, EveryOption().normalize(2))


@pytest.mark.parametrize("from_leaf", [False, True])  # an image that needs no gradient
@pytest.mark.parametrize(
    ("stride", "options"),
    [
        (1, {"mirrored": Mirrored, "constant": Constant, "skip": nn.Identity}),
        (1, {"constant": Constant}),
        (2, {"one": lambda: strided(1), "three": lambda: strided(3), "another": lambda: strided(1)}),
    ],
)
def test_candidates_of_other_parts_and_strides(
    stride: int, options: dict[str, Callable[[], nn.Module]], from_leaf: bool
) -> None:
    names = tuple(options)
    choices = {
        (0, target): Choice(Decision(f"0->{target}", names), {name: options[name]() for name in names})
        for target in (1, 2)  # two of each leave the same state
    }
    dag = Dag(choices, dict.fromkeys(choices, stride), outputs=[1, 2]).double()
    image = torch.randn(2, 2, 5, 5, dtype=torch.float64, requires_grad=not from_leaf)
    weights = torch.linspace(0.2, 0.7, len(names), dtype=torch.float64).requires_grad_()
    gates = {f"0->{target}": Gate(weights=weights) for target in (1, 2)}
    inputs = [weights, *dag.parameters(), *([] if from_leaf else [image])]
    found = {}
    for choice in ("plain", "torch"):
        with kernels.use_kernels(choice):
            first, second = dag([image], gates)
        total = (first * torch.arange(first.numel()).view_as(first)).sum() + second.square().sum()
        gradients = torch.autograd.grad(total, inputs, allow_unused=True)
        found[choice] = [total, *(torch.zeros(()) if one is None else one for one in gradients)]
    for plain, fused in zip(found["plain"], found["torch"], strict=True):
        torch.testing.assert_close(fused, plain.double().expand_as(fused), rtol=ROUNDING, atol=ROUNDING)


# --- what only modules do


@pytest.mark.parametrize("kind", ["index per image", "weights per image", "offset alone"])
def test_gates_that_differ_from_image_to_image_run_module_by_module(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError("fused")

    monkeypatch.setattr(fused_module, "_run", refuse)
    dag = cell((0, 1), outputs=[1])
    image = torch.randn(3, 2, 4, 4, dtype=torch.float64)
    weights = torch.tensor([[0.1, 0.2, 0.7]], dtype=torch.float64).expand(3, 3)
    gate = {
        "index per image": Gate(index=torch.tensor([0, 1, 2])),
        "weights per image": Gate(weights=weights),
        "offset alone": Gate(index=0, offset=torch.tensor(0.5, dtype=torch.float64)),
    }[kind]
    with kernels.use_kernels("torch"):
        (result,) = dag([image], {"0->1": gate})
    with kernels.use_kernels("plain"):
        (expected,) = dag([image], {"0->1": gate})
    torch.testing.assert_close(result, expected)
    for fusible in (Gate(index=1), Gate(index=1, offset=torch.tensor(0.5, dtype=torch.float64))):
        with kernels.use_kernels("torch"), pytest.raises(AssertionError, match="fused"):
            dag([image], {"0->1": fusible})


def test_a_second_derivative_is_refused_and_the_product_takes_the_modules(darts: Any) -> None:
    space, weights, batch, logits = darts
    row = next(iter(logits.values()))
    with kernels.use_kernels("torch"), pytest.raises(RuntimeError, match="no second derivative"):
        weights.gradient(weights.loss(batch, mixture(space, logits)), of=weights.parameters, create_graph=True)
    products = []
    for choice in ("plain", "torch"):
        with kernels.use_kernels(choice):
            vector = torch.ones(sum(value.numel() for value in weights.parameters.values()), dtype=row.dtype)
            curvature = Curvature(weights, batch, lambda _: mixture(space, logits), row)
            products.append(curvature.multiply_mixed_derivative(vector))
    assert torch.equal(*products)
    assert bool(products[0].any())


def test_a_graph_that_is_kept_can_be_walked_again(darts: Any) -> None:
    space, weights, batch, logits = darts
    loss = weights.loss(batch, mixture(space, logits))
    parameters = [*weights.parameters.values(), *logits.values()]
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    second = torch.autograd.grad(loss, parameters)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("make_gates", [mixture, weighted_path, path_with_offsets, bare_path, some_of_each])
@pytest.mark.parametrize("choice", ["torch", "auto"])
def test_a_cell_computed_again_gives_the_same_to_the_bit(make_gates: MakeGates, choice: Any) -> None:
    space = build_space("nb201")
    network, batch, logits = make_network(space), make_batch(), make_logits(space)
    found = []
    for recompute in (False, True):
        with kernels.use_kernels(choice, recompute=recompute):
            found.append(loss_and_gradients(network, batch, make_gates(space, logits), logits))
    (loss, gradients), (again, others) = found
    assert torch.equal(loss, again)
    for one, other in zip(gradients, others, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)  # type: ignore[arg-type]


def test_a_cell_to_be_computed_again_keeps_no_image_of_its_own() -> None:
    held: list[int] = []
    for recompute in (False, True):
        dag = cell((0, 1), (0, 2), (1, 2), outputs=[2])
        image = torch.randn(2, 2, 4, 4, dtype=torch.float64, requires_grad=True)
        with kernels.use_kernels("torch", recompute=recompute):
            (result,) = dag([image], edges("0->1 conv, 0->2 conv, 1->2 conv"))
        function = result.grad_fn
        while not hasattr(function, "cell"):
            function = function.next_functions[0][0]
        held.append(len(function.cell._states))
        first = torch.autograd.grad(result.sum(), image, retain_graph=True)[0]
        assert torch.equal(first, torch.autograd.grad(result.sum(), image)[0])  # kept, it can be walked again
        with pytest.raises(RuntimeError, match="retain_graph"):
            result.sum().backward()
    assert held == [3, 0]


def test_a_graph_that_was_not_kept_says_so(darts: Any) -> None:
    dag = cell((0, 1), outputs=[1])
    image = torch.randn(2, 2, 4, 4, dtype=torch.float64, requires_grad=True)
    (result,) = dag([image], edges("0->1 conv"))
    result.sum().backward()
    with pytest.raises(RuntimeError, match="retain_graph"):
        result.sum().backward()


def test_gradients_gathered_by_backward_are_those_asked_for(darts: Any) -> None:
    space, weights, batch, logits = darts
    parameters = [*weights.parameters.values(), *logits.values()]
    with kernels.use_kernels("torch"):
        expected = torch.autograd.grad(weights.loss(batch, mixture(space, logits)), parameters)
        weights.loss(batch, mixture(space, logits)).backward()
    for parameter, gradient in zip(parameters, expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("name", ["_will_run", "_graph_is_kept"])
def test_a_torch_without_graph_queries_gives_the_same(darts: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    space, weights, batch, logits = darts
    row = next(iter(logits.values()))
    expected = weights.gradient(weights.loss(batch, mixture(space, logits)), of=row)
    monkeypatch.setattr(fused_module, name, lambda *arguments: True)
    assert torch.equal(weights.gradient(weights.loss(batch, mixture(space, logits)), of=row), expected)


def test_a_run_is_freed_with_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cycle between a result and what its way back needs: memory would pile up until the collector comes."""
    cells: list[weakref.ref[Any]] = []
    original = fused_module._Cell.forward

    def noted(self: Any, *arguments: Any) -> Any:
        cells.append(weakref.ref(self))
        return original(self, *arguments)

    monkeypatch.setattr(fused_module._Cell, "forward", noted)
    space = Nb201(nodes=3, cells_per_stage=1)
    weights, logits = SharedWeights(make_network(space)), make_logits(space)
    gc.disable()
    try:
        loss = weights.loss(make_batch(), mixture(space, logits))
        assert all(cell() is not None for cell in cells)
        weights.gradient(loss, of=next(iter(logits.values())))
        del loss
        assert cells
        assert all(cell() is None for cell in cells)
    finally:
        gc.enable()


def test_a_choice_given_zero_gives_nothing() -> None:
    choice = Choice(Decision("edge", ("none", "skip")), {"skip": nn.Identity()})
    assert choice(None, {"edge": Gate(index=1)}) is None


# --- mixtures by torch.compile


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """What was compiled, by the number of its operations; torch's own code then runs it, which needs no compiler."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    graphs: list[int] = []

    def keep(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        graphs.append(len(graph.graph.nodes))
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    monkeypatch.setattr("archloom.supernet.choice.COMPILER", aot_autograd(fw_compiler=keep))
    yield graphs
    torch._dynamo.reset()


@pytest.mark.parametrize("name", ["nb201", "s2"])
def test_a_compiled_mixture_is_that_of_the_modules(name: str, compiled: list[int]) -> None:
    space = build_space(name)
    weights, batch, logits = SharedWeights(make_network(space)), make_batch(), make_logits(space)
    found = {}
    for choice in ("plain", "compile"):
        with kernels.use_kernels(choice):
            loss = weights.loss(batch, mixture(space, logits))
            by = torch.autograd.grad(loss, [*logits.values(), *weights.parameters.values()])
        found[choice] = [loss, *by]
    assert compiled
    torch.testing.assert_close(found["compile"], found["plain"])


def test_cells_of_one_shape_are_compiled_once_and_paths_and_scores_never(compiled: list[int]) -> None:
    space = Nb201(cells_per_stage=3)
    weights, batch, logits = SharedWeights(make_network(space)), make_batch(), make_logits(space)
    with kernels.use_kernels("compile"):
        weights.loss(batch, path_gates(space, space.sample(random.Random(0))))
        weights.score(batch, mixture(space, logits))
        assert not compiled
        weights.loss(batch, mixture(space, logits)).backward()
    assert len(compiled) == 2 * 3  # forwards and backwards, for three widths


# --- bfloat16


def nb201_gradients(*, low: bool = False, recompute: bool = False) -> dict[str, Tensor]:
    """The gradients of the weights, with all options."""
    space, single = Nb201(cells_per_stage=1), torch.float32
    weights = SharedWeights(make_network(space, dtype=single), WeightSettings(mixed_precision=low))
    with kernels.use_kernels("auto", recompute=recompute):
        loss = weights.loss(make_batch(single), mixture(space, make_logits(space, single)))
        return weights.gradient(loss, of=weights.parameters)


def autocast_gradients() -> dict[str, Tensor]:
    """The same, module by module in bfloat16."""
    space, batch, single = Nb201(cells_per_stage=1), make_batch(torch.float32), torch.float32
    network = make_network(space, dtype=single)
    with kernels.use_kernels("plain"), torch.autocast("cpu", torch.bfloat16):
        logits = network(batch.inputs, mixture(space, make_logits(space, single)))
    named = dict(network.named_parameters())
    found = torch.autograd.grad(nn.functional.cross_entropy(logits.float(), batch.labels), list(named.values()))
    return dict(zip(named, found, strict=True))


def distance(some: dict[str, Tensor], others: dict[str, Tensor]) -> float:
    return float(torch.stack([(some[name] - others[name]).norm() for name in some]).norm())


def test_convolutions_in_bfloat16_are_closer_than_modules_in_bfloat16() -> None:
    """Signs of rectifiers flip, so the rounding grows from cell to cell; less of it where statistics stay exact."""
    exact, low = nb201_gradients(), nb201_gradients(low=True)
    assert all(gradient.dtype is torch.float32 for gradient in low.values())
    assert 0.0 < distance(exact, low) < distance(exact, autocast_gradients())


def test_convolutions_in_bfloat16_are_those_of_rounded_images_and_weights() -> None:
    rounded = Kernels().in_bfloat16()
    convolution, image = nn.Conv2d(16, 16, 3, padding=1, bias=False), torch.randn(2, 8, 8, 16)
    ((group, _),) = group_branches(rounded, [Dense(convolution)])
    state = State(image, Slot())
    weight = convolution.weight.detach()
    (term,) = group.forward(state, [weight])

    source = image.relu().bfloat16().double().permute(0, 3, 1, 2).requires_grad_()
    kernel = weight.bfloat16().double().requires_grad_()
    expected = nn.functional.conv2d(source, kernel, padding=1)
    like = {"rtol": 2**-7, "atol": 2**-6, "check_dtype": False}  # a result is rounded once more
    torch.testing.assert_close(term.image.permute(0, 3, 1, 2), expected, **like)

    gradient = torch.randn(2, 8, 8, 16)
    (slot,) = group.make_slots(state, weights_wanted=True)
    assert slot is not None
    slot.add(gradient)
    room = torch.empty_like(weight)
    group.backward(state, [room])
    by_source, by_kernel = torch.autograd.grad(
        expected, [source, kernel], gradient.bfloat16().double().permute(0, 3, 1, 2)
    )
    assert state.by_rectified is not None
    torch.testing.assert_close(state.by_rectified.permute(0, 3, 1, 2), by_source, **like)
    torch.testing.assert_close(room, by_kernel, **{**like, "atol": 2**-4})
    assert term.image.dtype is room.dtype is state.by_rectified.dtype is torch.float32


def test_cells_computed_again_round_as_they_did() -> None:
    kept, again = nb201_gradients(low=True), nb201_gradients(low=True, recompute=True)
    assert all(torch.equal(kept[name], again[name]) for name in kept)
