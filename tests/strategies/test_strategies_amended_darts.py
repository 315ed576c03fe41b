"""The second part of the architecture gradient against dense matrices, and what the paper's inverse does not keep."""

import pytest
import torch
from smooth import SPACE, search_batch, smooth_weights
from torch import Tensor

from archloom.core.errors import SettingError
from archloom.strategies.amended_darts import (
    AmendedDarts,
    approximate_inverse,
    conjugate_gradient,
    neumann_series,
    parse_inverse,
    split_in_halves,
)
from archloom.strategies.darts import Darts
from archloom.supernet import SharedWeights, to_vector

DECAY = 0.05


def make(kind=AmendedDarts, **settings):
    strategy = kind(SPACE, torch.Generator().manual_seed(0), **settings)
    strategy.policy.double()
    with torch.no_grad():
        strategy.policy.values.copy_(torch.randn(12, generator=torch.Generator().manual_seed(4)))
    return strategy


def dense(strategy, weights: SharedWeights, batch) -> tuple[Tensor, Tensor]:
    """The Hessian of the training loss by the weights, and its mixed derivative [logits, weights], row by row."""
    parameters, values = list(weights.parameters.values()), strategy.policy.values
    loss = weights.loss(batch.train, strategy.policy.mixture())
    gradient = to_vector(torch.autograd.grad(loss, parameters, create_graph=True))
    rows, columns = [], []
    for entry in gradient:
        *by_weights, by_logits = torch.autograd.grad(entry, [*parameters, values], retain_graph=True, allow_unused=True)
        pairs = zip(parameters, by_weights, strict=True)
        rows.append(to_vector(torch.zeros_like(p) if g is None else g for p, g in pairs))
        columns.append(by_logits)
    return torch.stack(rows), torch.stack(columns, dim=1)


def of_validation(strategy, weights: SharedWeights, batch) -> tuple[Tensor, Tensor]:
    loss = weights.loss(batch.valid, strategy.policy.mixture())
    direct, *vector = torch.autograd.grad(loss, [strategy.policy.values, *weights.parameters.values()])
    return direct, to_vector(vector)


def wanted(inverse: str, hessian: Tensor, mixed: Tensor, vector: Tensor, eta: float) -> Tensor:
    size = len(hessian)
    damped = hessian + DECAY * torch.eye(size, dtype=torch.float64)
    series = sum(torch.linalg.matrix_power(torch.eye(size, dtype=torch.float64) - eta * damped, k) for k in range(3))
    solved = {
        "hessian": eta * hessian @ vector,
        "identity": eta * vector,
        "neumann:3": eta * series @ vector,
    }[inverse]
    return -mixed @ solved


@pytest.mark.parametrize("inverse", ["hessian", "identity", "neumann:3"])
def test_exact_products_give_what_dense_matrices_give(inverse):
    strategy = make(inverse=inverse, eta=0.3, products="exact")
    weights, batch = smooth_weights(weight_decay=DECAY), search_batch(0)
    hessian, mixed = dense(strategy, weights, batch)
    direct, vector = of_validation(strategy, weights, batch)
    found_direct, second, evaluated = strategy.gradients(weights, batch)
    right = wanted(inverse, hessian, mixed, vector, 0.3)
    assert torch.allclose(found_direct, direct, rtol=0, atol=1e-12)
    assert right.norm() > 1e-3
    assert (second - right).norm() < 1e-6 * right.norm()
    assert evaluated.loss == weights.loss(batch.valid, strategy.policy.mixture())


def test_differences_agree_with_exact_products_on_a_smooth_network():
    exact, differences = (make(inverse="hessian", products=products) for products in ("exact", "differences"))
    weights, batch = smooth_weights(), search_batch(0)
    _, right, _ = exact.gradients(weights, batch)
    _, found, _ = differences.gradients(weights, batch)
    assert torch.cosine_similarity(found, right, dim=0) > 0.999
    assert (found - right).norm() < 0.01 * right.norm()


def test_conjugate_gradients_give_the_implicit_gradient_where_the_hessian_curves_upwards():
    strategy = make(inverse="conjugate_gradient:400", damping=0.5, products="exact")
    weights, batch = smooth_weights(), search_batch(0)
    hessian, mixed = dense(strategy, weights, batch)
    damped = hessian + 0.5 * torch.eye(len(hessian), dtype=torch.float64)
    assert torch.linalg.eigvalsh(damped).min() > 0
    _, vector = of_validation(strategy, weights, batch)
    right = -mixed @ torch.linalg.solve(damped, vector)
    _, second, _ = strategy.gradients(weights, batch)
    assert (second - right).norm() < 1e-6 * right.norm()


def test_without_a_second_part_it_is_darts():
    amended, darts, batch = make(eta=0.0), make(Darts), search_batch(0)
    one, other = smooth_weights(), smooth_weights()
    for _ in range(3):
        figures = amended.step(one, batch)
        darts.step(other, batch)
    assert torch.equal(amended.policy.values, darts.policy.values)
    assert all(torch.equal(value, other.parameters[name]) for name, value in one.parameters.items())
    assert figures["correction"] == 0


def test_the_second_part_moves_the_logits_of_a_step():
    amended, plain, batch = make(eta=1.0), make(eta=0.0), search_batch(0)
    figures = amended.step(smooth_weights(), batch)
    plain.step(smooth_weights(), batch)
    assert not torch.equal(amended.policy.values, plain.policy.values)
    assert figures["correction"] > 0


def test_the_second_part_is_no_longer_than_asked():
    batch, weights = search_batch(0), smooth_weights()
    free, bound = (make(eta=10.0, inverse="hessian", limit=limit) for limit in (0.0, 0.25))
    direct, second, _ = free.gradients(weights, batch)
    assert second.norm() > 0.25 * direct.norm()
    steps = []
    for strategy in (free, bound):
        strategy.descend = lambda gradient, _: steps.append(gradient)
        assert strategy.step(smooth_weights(), batch)["correction"] == pytest.approx(
            float(second.norm() / direct.norm())
        )
    assert torch.allclose(steps[0], direct + second, rtol=0, atol=1e-12)
    assert torch.allclose(steps[1] - direct, second * 0.25 * direct.norm() / second.norm(), rtol=0, atol=1e-12)


def test_a_gradient_leaves_the_weights_alone():
    strategy, weights = make(products="differences"), smooth_weights()
    before = {name: value.clone() for name, value in weights._network.state_dict().items()}
    strategy.gradients(weights, search_batch(0))
    assert all(torch.equal(before[name], value) for name, value in weights._network.state_dict().items())
    assert all(parameter.grad is None for parameter in weights.parameters.values())


def test_two_halves_of_a_batch_serve_the_two_derivatives():
    strategy, batch = make(inverse="hessian", independent=True, products="exact"), search_batch(0)
    weights = smooth_weights()
    first, second = split_in_halves(batch.train)
    assert (len(first), len(second)) == (6, 6)
    assert torch.equal(torch.cat([first.labels, second.labels]), batch.train.labels)
    _, vector = of_validation(strategy, weights, batch)
    solved = 0.1 * strategy._curvature(weights, first).multiply_weight_hessian(vector)
    right = -strategy._curvature(weights, second).multiply_mixed_derivative(solved)
    assert torch.allclose(strategy.gradients(weights, batch)[1], right, rtol=0, atol=1e-14)
    assert not torch.allclose(make(inverse="hessian", products="exact").gradients(weights, batch)[1], right)


# --- what the paper's inverse promises, and what it does not


def angle(hessian: Tensor, mixed: Tensor, vector: Tensor) -> float:
    """<g2', g2> / eta: the paper's second part against the true one."""
    return float((mixed @ hessian @ vector) @ (mixed @ torch.linalg.solve(hessian, vector)))


def test_where_the_hessian_is_a_multiple_of_the_identity_the_second_part_points_the_right_way():
    generator = torch.Generator().manual_seed(0)
    for scale in (0.1, 1.0, 30.0):
        mixed, vector = (torch.randn(shape, generator=generator) for shape in ((3, 5), (5,)))
        assert angle(scale * torch.eye(5), mixed, vector) >= 0


def test_the_paper_guarantee_is_false():
    hessian, mixed, vector = (
        torch.diag(torch.tensor([1.0, 100.0])),
        torch.tensor([[1.0, 1.0]]),
        torch.tensor([1, -0.05]),
    )
    assert angle(hessian, mixed, vector) == pytest.approx(-3.998, abs=1e-3)
    found = approximate_inverse("hessian", 0, lambda direction: hessian @ direction, vector, eta=0.1)
    assert torch.allclose(found, torch.tensor([0.1, -0.5]))
    steps = conjugate_gradient(lambda direction: hessian @ direction, vector, steps=2)
    assert torch.allclose(steps, torch.tensor([1.0, -0.0005]), atol=1e-6)  # two steps solve two equations


# --- inverses


def test_the_series_converges_to_the_inverse_and_one_term_is_the_identity():
    generator = torch.Generator().manual_seed(1)
    root = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    hessian, vector = root @ root.T / 6 + torch.eye(6), torch.randn(6, generator=generator, dtype=torch.float64)

    def product(direction: Tensor) -> Tensor:
        return hessian @ direction

    right = torch.linalg.solve(hessian, vector)
    errors = [float((neumann_series(product, vector, terms=k, rate=0.2) - right).norm()) for k in (1, 5, 20, 200)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-10
    assert torch.equal(neumann_series(product, vector, terms=1, rate=0.2), 0.2 * vector)


def test_conjugate_gradients_stop_where_the_hessian_curves_downwards():
    hessian, vector = torch.diag(torch.tensor([2.0, -1.0])), torch.tensor([1.0, 0.1])
    found = conjugate_gradient(lambda direction: hessian @ direction, vector, steps=50)
    first = vector * (vector @ vector) / (vector @ hessian @ vector)
    assert torch.allclose(found, first)
    downwards = conjugate_gradient(lambda direction: -direction, vector, steps=5)
    assert torch.equal(downwards, torch.zeros(2))
    assert torch.equal(conjugate_gradient(lambda direction: direction, torch.zeros(2), steps=5), torch.zeros(2))


@pytest.mark.parametrize(
    "text", ["newton", "neumann", "neumann:", "neumann:0", "neumann:x", "hessian:3", "", "neumann:3:4"]
)
def test_an_unknown_inverse_is_refused(text):
    with pytest.raises(SettingError, match=r"strategy.inverse must be hessian, identity, neumann:K or"):
        parse_inverse(text)


def test_inverses_are_parsed():
    assert parse_inverse("hessian") == ("hessian", 0)
    assert parse_inverse("conjugate_gradient:12") == ("conjugate_gradient", 12)


def test_all_broken_rules_are_reported_together():
    with pytest.raises(SettingError) as caught:
        make(eta=-1.0, limit=-1.0, damping=-1.0, difference_step=0.0)
    assert len(caught.value.problems) == 4
