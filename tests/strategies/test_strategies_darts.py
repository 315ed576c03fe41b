from dataclasses import replace

import pytest
import torch
from smooth import SPACE, search_batch, smooth_weights

from archloom.core.errors import SettingError
from archloom.strategies.darts import Darts
from archloom.supernet import SharedWeights


def make(**settings) -> Darts:
    strategy = Darts(SPACE, torch.Generator().manual_seed(0), **settings)
    strategy.policy.double()
    with torch.no_grad():
        strategy.policy.values.copy_(torch.randn(12, generator=torch.Generator().manual_seed(4)))
    return strategy


def warmed_up(strategy: Darts, **settings) -> SharedWeights:
    """Weights with momentum behind them, as in the middle of a search."""
    weights = smooth_weights(learning_rate=0.3, momentum=0.9, weight_decay=0.01, clip=0.0, **settings)
    for seed in range(10, 13):
        weights.fit(search_batch(seed).train, strategy.policy.mixture())
    return weights


def unrolled_gradient(strategy: Darts, weights: SharedWeights, batch) -> torch.Tensor:
    """d/da L_valid(w'(a), a) with w'(a) one SGD step, differentiated through the step by autograd itself."""
    group = weights._optimizer.param_groups[0]
    gates = strategy.policy.mixture()
    gradient = torch.autograd.grad(
        weights.loss(batch.train, gates), list(weights.parameters.values()), create_graph=True
    )
    moved = {}
    for (name, parameter), derivative in zip(weights.parameters.items(), gradient, strict=True):
        buffer = weights._optimizer.state[parameter]["momentum_buffer"]
        step = derivative + group["weight_decay"] * parameter + group["momentum"] * buffer
        moved[name] = parameter - group["lr"] * step
    loss = weights.loss(batch.valid, gates, parameters=moved)
    return torch.autograd.grad(loss, [strategy.policy.values])[0]


def test_first_order_gradient_is_that_of_the_validation_loss():
    strategy = make()
    weights, batch = warmed_up(strategy), search_batch(0)
    wanted = torch.autograd.grad(weights.loss(batch.valid, strategy.policy.mixture()), [strategy.policy.values])[0]
    gradient, evaluated = strategy.gradient(weights, batch)
    assert torch.equal(gradient, wanted)
    assert evaluated.loss == weights.loss(batch.valid, strategy.policy.mixture())


def test_second_order_gradient_is_that_through_one_training_step():
    strategy = make(order="second")
    weights, batch = warmed_up(strategy), search_batch(0)
    gradient, _ = strategy.gradient(weights, batch)
    wanted = unrolled_gradient(strategy, weights, batch)
    assert (gradient - wanted).abs().max() < 1e-12
    first, _ = make().gradient(weights, batch)
    assert (gradient - first).abs().max() > 1e-3  # the correction is not negligible here


def test_second_order_gradient_agrees_with_a_dense_mixed_hessian():
    strategy = make(order="second")
    weights, batch = warmed_up(strategy), search_batch(0)
    parameters = weights.parameters
    derivative = torch.cat(
        [
            part.flatten()
            for part in torch.autograd.grad(
                weights.loss(batch.train, strategy.policy.mixture()), list(parameters.values()), create_graph=True
            )
        ]
    )
    dense = torch.stack(
        [torch.autograd.grad(row, [strategy.policy.values], retain_graph=True)[0] for row in derivative]
    )  # [weights, logits]
    moved = weights.virtual_step(batch.train, strategy.policy.mixture())
    loss = weights.loss(batch.valid, strategy.policy.mixture(), parameters=moved)
    direct, *vector = torch.autograd.grad(loss, [strategy.policy.values, *moved.values()])
    wanted = direct - weights.learning_rate * dense.T @ torch.cat([part.flatten() for part in vector])
    gradient, _ = strategy.gradient(weights, batch)
    assert (gradient - wanted).abs().max() < 1e-12


def test_finite_differences_agree_with_the_exact_product():
    exact, differences = make(order="second"), make(order="second", products="differences")
    weights, batch = warmed_up(exact), search_batch(0)
    wanted, _ = exact.gradient(weights, batch)
    gradient, _ = differences.gradient(weights, batch)
    first, _ = make().gradient(weights, batch)
    assert (gradient - wanted).norm() < 1e-3 * (wanted - first).norm()


@pytest.mark.parametrize("products", ["exact", "differences"])
def test_second_order_gradient_leaves_the_weights_alone(products):
    strategy = make(order="second", products=products)
    weights = warmed_up(strategy)
    before = {name: value.clone() for name, value in weights._network.state_dict().items()}
    strategy.gradient(weights, search_batch(0))
    assert all(torch.equal(before[name], value) for name, value in weights._network.state_dict().items())
    assert all(parameter.grad is None for parameter in weights._network.parameters())


def test_step_moves_the_architecture_before_the_weights():
    strategy = make(learning_rate=0.5)
    weights = smooth_weights()
    batch = search_batch(0)
    other, other_weights = make(learning_rate=0.5), smooth_weights()
    gradient, _ = other.gradient(other_weights, batch)
    other.descend(gradient, batch)
    other_weights.fit(batch.train, other.policy.mixture())
    metrics = strategy.step(weights, batch)
    assert torch.equal(strategy.policy.values, other.policy.values)
    for name, value in weights.parameters.items():
        assert torch.equal(value, other_weights.parameters[name])
    assert set(metrics) == {"train_loss", "train_accuracy", "valid_loss", "valid_accuracy"}


def test_perturbed_weights_learn_on_shares_near_the_mixture():
    strategy, plain, seen = make(perturbation=0.2), make(), []
    for progress in (0.0, 0.5, 1.0):
        batch = replace(search_batch(0), progress=progress)
        for name, gate in strategy._perturb_mixture(batch).items():
            shares = plain.policy.mixture()[name].weights.detach()
            assert float(gate.weights.sum()) == pytest.approx(1)
            assert bool((gate.weights >= 0).all())
            seen.append((progress, float((gate.weights - shares).abs().max())))
    largest = {progress: max(size for at, size in seen if at == progress) for progress in (0.0, 0.5, 1.0)}
    assert largest[0.0] < 1e-12
    assert 0.01 < largest[0.5] < 0.25
    assert largest[0.5] < largest[1.0]
    weights, other = smooth_weights(), smooth_weights()
    strategy.step(weights, replace(search_batch(0), progress=1.0))
    plain.step(other, replace(search_batch(0), progress=1.0))
    assert torch.equal(strategy.policy.values, plain.policy.values)  # the logits see the mixture itself
    assert not torch.equal(weights._network.head.weight, other._network.head.weight)


def test_while_warming_up_only_the_weights_move():
    strategy, weights = make(warmup=0.5), smooth_weights()
    logits, first = strategy.policy.values.detach().clone(), weights._network.head.weight.detach().clone()
    strategy.step(weights, search_batch(0, epoch=1, epochs=4))
    assert torch.equal(strategy.policy.values, logits)
    assert not torch.equal(weights._network.head.weight, first)
    strategy.step(weights, search_batch(0, epoch=2, epochs=4))
    assert not torch.equal(strategy.policy.values, logits)


def test_one_step_descends_on_the_validation_loss():
    strategy, weights, batch = make(learning_rate=1e-3, weight_decay=0.0), smooth_weights(), search_batch(0)
    before = weights.loss(batch.valid, strategy.policy.mixture())
    strategy.descend(strategy.gradient(weights, batch)[0], batch)
    assert weights.loss(batch.valid, strategy.policy.mixture()) < before


def test_best_decodes_probabilities_with_or_without_none():
    keeping, dropping = make(keep_none=True), make(keep_none=False)
    for strategy in (keeping, dropping):
        with torch.no_grad():
            strategy.policy.values.copy_(torch.tensor([3.0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 4]))
    assert list(keeping.best(lambda a: 0.0).values()) == ["none", "narrow", "skip"]
    assert list(dropping.best(lambda a: 0.0).values()) == ["narrow", "narrow", "skip"]


def test_all_broken_rules_are_reported_together():
    with pytest.raises(SettingError, match="difference_step must be above 0, got 0"):
        make(difference_step=0.0)
    with pytest.raises(SettingError, match=r"perturbation must lie in \[0, 1\], got 2"):
        make(perturbation=2.0)
    with pytest.raises(SettingError) as caught:
        make(learning_rate=-1.0, weight_decay=-2.0, warmup=1.0)
    assert caught.value.problems == (
        "strategy.learning_rate must be above 0, got -1.0",
        "strategy.weight_decay must be 0 or more, got -2.0",
        "strategy.warmup must lie in [0, 1), got 1.0",
    )
