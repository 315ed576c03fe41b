"""The fused recurrent segment computes what the plain steps compute, in values and in all gradients."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from archloom.core.errors import SettingError
from archloom.families import build_network
from archloom.families.recurrent import RecurrentNetwork
from archloom.fast import use_kernels
from archloom.spaces import NONE, Architecture, Recurrent
from archloom.supernet import EveryOption, Gate, Gates, SharedWeights, path_gates
from archloom.tasks import LANGUAGE, TextShape

WORDS = 9


def make(space: Recurrent, **settings: object) -> RecurrentNetwork:
    torch.manual_seed(0)
    network = build_network(space, EveryOption(), TextShape(WORDS), hidden=5, **settings).double()
    assert isinstance(network, RecurrentNetwork)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.uniform_(-0.7, 0.7)
    return network


def mixture(space: Recurrent) -> tuple[Gates, list[Tensor]]:
    generator = torch.Generator().manual_seed(1)
    leaves = [torch.rand(len(d.options), generator=generator, dtype=torch.float64) for d in space.decisions]
    for leaf in leaves:
        leaf.requires_grad_()
    return {d.name: Gate(weights=leaf) for d, leaf in zip(space.decisions, leaves, strict=True)}, leaves


def samples(space: Recurrent, seed: int) -> tuple[Gates, list[Tensor]]:
    """Return one option for every edge, with a weight that has a gradient; some edges are closed."""
    rng = random.Random(seed)
    gates, leaves = {}, []
    for decision in space.decisions:
        leaf = torch.rand(len(decision.options), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        leaves.append(leaf.requires_grad_())
        gates[decision.name] = Gate(index=rng.randrange(len(decision.options)), weights=leaf)
    return gates, leaves


def paths(space: Recurrent, seed: int) -> tuple[Gates, list[Tensor]]:
    return path_gates(space, space.sample(random.Random(seed))), []


KINDS = {"mixture": lambda space: mixture(space)} | {
    f"{make_gates.__name__} {seed}": (lambda space, make_gates=make_gates, seed=seed: make_gates(space, seed))
    for make_gates in (samples, paths)
    for seed in range(3)
}


def run(network: RecurrentNetwork, gates: Gates, leaves: list[Tensor], kernels: str) -> list[Tensor]:
    words = torch.randint(WORDS, (6, 4), generator=torch.Generator().manual_seed(2))
    targets = torch.randint(WORDS, (24,), generator=torch.Generator().manual_seed(3))
    state = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).requires_grad_()
    with use_kernels(kernels), torch.random.fork_rng():  # type: ignore[arg-type]
        torch.manual_seed(5)
        found = network(words, gates, state)
        loss = F.cross_entropy(found.logits, targets) + found.penalty + 0.3 * found.state.square().sum()
        inputs = [*network.parameters(), *leaves, state]
        gradients = torch.autograd.grad(loss, inputs, allow_unused=True)
    values = [torch.zeros_like(one) if g is None else g for one, g in zip(inputs, gradients, strict=True)]
    return [found.logits.detach(), found.state.detach(), *values]


@pytest.mark.parametrize("output", ["all", "loose_ends"])
@pytest.mark.parametrize("normalize", ["batch", "none"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_agree(kind: str, dropout: float, normalize: str, output: str) -> None:
    space = Recurrent(nodes=4, output=output)  # type: ignore[arg-type]
    settings = {f"dropout_{part}": dropout for part in ("output", "hidden", "input", "embedding", "words")}
    network = make(space, normalize=normalize, change_penalty=0.5, activation_penalty=0.2, **settings)
    gates, leaves = KINDS[kind](space)
    fast, plain = (run(network, gates, leaves, kernels) for kernels in ("auto", "plain"))
    for one, two in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-10)


def test_a_node_that_reads_nothing_is_zero_in_both() -> None:
    space = Recurrent(nodes=3)
    closed = Architecture({d.name: NONE for d in space.decisions} | {"0->1": "tanh", "2->3": "sigmoid"})
    network = make(space)
    gates = path_gates(space, closed)
    for one, two in zip(run(network, gates, [], "auto"), run(network, gates, [], "plain"), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-10)


def test_weights_get_a_gradient_without_gates_and_gates_without_weights() -> None:
    space = Recurrent(nodes=3)
    network, (gates, leaves) = make(space), mixture(space)
    words = torch.randint(WORDS, (3, 4))
    loss = network(words, {name: gate.detach() for name, gate in gates.items()}).logits.square().mean()
    assert all(torch.autograd.grad(loss, [network.nodes])[0].abs().sum(dim=(1, 2)) > 0)
    (gradient,) = torch.autograd.grad(network(words, gates).logits.square().mean(), [leaves[0]])
    assert float(gradient[0]) == 0.0 and float(gradient[1:].abs().min()) > 0  # `none` is closed


def test_a_second_derivative_is_refused_and_the_plain_steps_have_one() -> None:
    space = Recurrent(nodes=2)
    network, (gates, leaves) = make(space), mixture(space)
    words = torch.randint(WORDS, (3, 4))
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(network(words, gates).logits.square().mean(), leaves, create_graph=True)
    with use_kernels("plain"):
        first = torch.autograd.grad(network(words, gates).logits.square().mean(), leaves, create_graph=True)
    torch.autograd.grad(first[0].sum(), [network.nodes])


def test_one_column_has_no_statistics() -> None:
    space = Recurrent(nodes=2)
    weights = SharedWeights(make(space), task=LANGUAGE)
    from archloom.data.text import TextLoader

    batch = TextLoader(torch.arange(8), columns=1, segment=3, stream="one").batch(0, 0)
    with pytest.raises(SettingError, match="batch normalisation needs more than one value"):
        weights.score(batch, mixture(space)[0])


class CountedProducts(TorchDispatchMode):
    """Counts the products that add up gradients of matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten.addmm_.default
        return func(*args, **(kwargs or {}))


def test_matrices_have_no_products_where_only_the_gates_learn() -> None:
    space = Recurrent(nodes=3)
    network, (gates, leaves) = make(space), mixture(space)
    words = torch.randint(WORDS, (6, 4), generator=torch.Generator().manual_seed(2))
    counts = []
    for wanted in (leaves, [*leaves, network.nodes], [network.start]):
        loss = network(words, gates).logits.square().mean()
        with CountedProducts() as counted:
            torch.autograd.grad(loss, wanted)
        counts.append(counted.count)
    assert counts == [0, 6 * (1 + 3), 6 * (1 + 3)]  # per time step: the last output's, and one for each node
