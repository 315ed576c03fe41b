"""Products with second derivatives against dense ones, and that taking them leaves no trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, hessian
from torch.nn import functional as F

from archloom.data.loader import Batch
from archloom.supernet import Curvature, Gate, Gates, SharedWeights, to_vector

LOGITS = torch.tensor([0.3, -0.5], dtype=torch.float64)
FIRST: Gates = {"edge": Gate(index=0)}


class Mixed(nn.Module):
    """Two options mixed by a gate."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.options = nn.ModuleList(nn.Linear(3, 4) for _ in range(2))
        self.head, self.activation = nn.Linear(4, 3), activation

    def forward(self, x: Tensor, gates: Gates) -> Tensor:
        gate = gates["edge"]
        if gate.weights is None:
            return self.head(self.activation(self.options[0](x)))  # type: ignore[no-any-return]
        terms = [w * self.activation(option(x)) for w, option in zip(gate.weights, self.options, strict=True)]
        return self.head(torch.stack(terms).sum(dim=0))  # type: ignore[no-any-return]


class Restless(Mixed):
    """With running statistics and dropout, which every pass would change."""

    def __init__(self) -> None:
        super().__init__(nn.Softplus())
        self.norm, self.dropout = nn.BatchNorm1d(3), nn.Dropout(0.5)

    def forward(self, x: Tensor, gates: Gates) -> Tensor:
        return super().forward(self.dropout(self.norm(x)), gates)


def made(network: nn.Module) -> SharedWeights:
    network = network.double()
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return SharedWeights(network)


def smooth() -> SharedWeights:
    return made(Mixed(nn.Softplus()))


def batch() -> Batch:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(8, 3, generator=generator, dtype=torch.float64)
    return Batch(images, torch.randint(3, (8,), generator=generator))


def mixture(logits: Tensor) -> Gates:
    return {"edge": Gate(weights=logits.softmax(dim=0))}


def curvature(weights: SharedWeights, *, step: float | None = None, gates: Any = mixture) -> Curvature:
    return Curvature(weights, batch(), gates, LOGITS.clone().requires_grad_(), step=step)


def direction(size: int, *, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(size, generator=torch.Generator().manual_seed(9), dtype=torch.float64)


def dense(weights: SharedWeights) -> Tensor:
    """All second derivatives, by the weights and then the logits, in one matrix."""
    data, sizes = batch(), [value.numel() for value in weights.parameters.values()]

    def loss(everything: Tensor) -> Tensor:
        *parts, logits = everything.split([*sizes, 2])
        shaped = {n: part.view(v.shape) for (n, v), part in zip(weights.parameters.items(), parts, strict=True)}
        return F.cross_entropy(functional_call(weights._network, shaped, (data.images, mixture(logits))), data.labels)

    matrix: Tensor = hessian(loss)(torch.cat([to_vector(weights.parameters.values()).detach(), LOGITS]))
    return matrix


def products(made: Curvature, count: int, *, scale: float = 1.0) -> list[Tensor]:
    vector = direction(count, scale=scale)
    return [
        made.multiply_weight_hessian(vector),
        made.multiply_mixed_derivative(vector),
        made.multiply_logit_hessian(direction(2, scale=scale)),
    ]


def expected(weights: SharedWeights, *, scale: float = 1.0) -> list[Tensor]:
    matrix = dense(weights)
    count = len(matrix) - 2
    vector = direction(count, scale=scale)
    mixed = matrix[count:, :count] @ vector
    return [matrix[:count, :count] @ vector, mixed, matrix[count:, count:] @ direction(2, scale=scale)]


def size(weights: SharedWeights) -> int:
    return sum(value.numel() for value in weights.parameters.values())


def test_exact_products_are_dense_matrices_times_vectors() -> None:
    weights = smooth()
    exact = curvature(weights)
    for _ in range(2):  # the graph serves any number of products
        for product, wanted in zip(products(exact, size(weights)), expected(weights), strict=True):
            assert wanted.abs().max() > 1e-3
            torch.testing.assert_close(product, wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("scale", [1.0, 100.0, 0.01])
def test_differences_approach_exact_products_whatever_the_length_of_the_vector(scale: float) -> None:
    """A product that was divided by 2 and multiplied by the step, a mistake of public code, fails here."""
    weights = smooth()
    found = products(curvature(weights, step=0.01), size(weights), scale=scale)
    for product, wanted in zip(found, expected(weights, scale=scale), strict=True):
        assert F.cosine_similarity(product, wanted, dim=0) > 0.999
        assert (product - wanted).norm() < 1e-3 * wanted.norm()


def test_differences_get_four_times_better_with_half_the_step() -> None:
    """Central differences: the error falls with the square of the step."""
    weights = smooth()
    wanted = expected(weights)
    coarse, fine = (products(curvature(weights, step=step), size(weights)) for step in (0.2, 0.1))
    for one, other, right in zip(coarse, fine, wanted, strict=True):
        assert ((one - right).norm() / (other - right).norm()).item() == pytest.approx(4, rel=0.15)


def test_on_a_network_of_kinks_differences_are_another_quantity_however_small_the_step() -> None:
    """Exact products do not see kinks; differences average over those they cross, and none are left at tiny steps."""
    kinked, soft = made(Mixed(nn.ReLU())), smooth()
    vector = direction(size(kinked))

    def error(weights: SharedWeights, step: float) -> float:
        exact = curvature(weights).multiply_weight_hessian(vector)
        return float((curvature(weights, step=step).multiply_weight_hessian(vector) - exact).norm() / exact.norm())

    assert error(kinked, 1.0) > 0.1
    assert error(kinked, 1e-5) < 1e-6
    assert error(soft, 1e-5) < 1e-6


@pytest.mark.parametrize("step", [None, 0.01])
def test_products_leave_no_trace_and_see_the_same_random_numbers(step: float | None) -> None:
    weights = made(Restless())
    for parameter in weights.parameters.values():
        parameter.grad = None
    before = {name: value.clone() for name, value in weights._network.state_dict().items()}
    made_once = curvature(weights, step=step)
    random = torch.get_rng_state()
    first = products(made_once, size(weights))
    assert torch.equal(torch.get_rng_state(), random)
    torch.rand(7)  # the world goes on; the products stay
    for product, again in zip(first, products(made_once, size(weights)), strict=True):
        assert torch.equal(product, again)
    assert all(torch.equal(before[name], value) for name, value in weights._network.state_dict().items())
    assert all(parameter.grad is None for parameter in weights.parameters.values())
    weights.load_state_dict({**weights.state_dict(), "fits": 1})  # a step later dropout drops others
    exact = products(curvature(weights), size(weights))
    assert not torch.allclose(exact[0], first[0], rtol=0.1)


@pytest.mark.parametrize("step", [None, 0.01])
def test_the_product_of_nothing_is_zero(step: float | None) -> None:
    weights = smooth()
    made_once, count = curvature(weights, step=step), size(weights)
    assert torch.equal(made_once.multiply_weight_hessian(torch.zeros(count).double()), torch.zeros(count).double())
    assert torch.equal(made_once.multiply_mixed_derivative(torch.zeros(count).double()), torch.zeros(2).double())
    assert torch.equal(made_once.multiply_logit_hessian(torch.zeros(2).double()), torch.zeros(2).double())


@pytest.mark.parametrize("step", [None, 0.01])
def test_products_are_zero_where_gates_do_not_depend_on_the_logits(step: float | None) -> None:
    weights = smooth()
    fixed = curvature(weights, step=step, gates=lambda _: FIRST)
    assert torch.equal(fixed.multiply_mixed_derivative(direction(size(weights))), torch.zeros(2).double())
    assert torch.equal(fixed.multiply_logit_hessian(direction(2)), torch.zeros(2).double())
