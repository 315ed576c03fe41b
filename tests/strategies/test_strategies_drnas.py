from __future__ import annotations

import pytest
import torch
from smooth import SPACE, batch, search_batch, smooth_weights
from torch.distributions import Dirichlet

from archloom.policies.dirichlet import DirichletLogits
from archloom.strategies.drnas import DrNas
from archloom.supernet import EveryOption, Gate, PartialChannels


def make(**settings) -> DrNas:
    strategy = DrNas(SPACE, torch.Generator().manual_seed(0), **settings)
    strategy.policy.double()
    with torch.no_grad():
        strategy.policy.values.copy_(torch.randn(12, generator=torch.Generator().manual_seed(4)))
    return strategy


def test_concentrations_are_those_of_the_paper():
    policy = make().policy
    row, values = policy.concentrations()["0->1"], policy.values[:4]
    wanted = torch.where(values > 0, values + 1, values.exp())  # elu + 1
    assert torch.allclose(row, wanted)
    fresh = DirichletLogits(SPACE, torch.Generator().manual_seed(0))
    assert all(torch.allclose(row, torch.ones(4), atol=0.01) for row in fresh.concentrations().values())


def test_samples_have_the_mean_and_the_spread_of_the_distribution():
    policy, generator = make().policy, torch.Generator().manual_seed(1)
    draws = torch.stack([policy.sample(generator)["0->1"].weights.detach() for _ in range(3000)])
    wanted = Dirichlet(policy.concentrations()["0->1"].detach())
    assert torch.allclose(draws.sum(dim=1), torch.ones(3000).double())
    assert torch.allclose(draws.mean(dim=0), wanted.mean, atol=0.02)
    assert torch.allclose(draws.var(dim=0), wanted.variance, rtol=0.15, atol=0.002)


def test_gradients_through_samples_average_to_that_of_the_mean_loss():
    """E[w^2] of a Dirichlet has a closed form; its gradient by the values is what sampled gradients average to."""
    policy, generator = make().policy, torch.Generator().manual_seed(2)
    concentrations = policy.concentrations()["0->1"]
    total = concentrations.sum()
    exact = (concentrations * (concentrations + 1) / (total * (total + 1)))[1]
    (wanted,) = torch.autograd.grad(exact, [policy.values])
    found = torch.zeros_like(policy.values)
    for _ in range(4000):
        loss = policy.sample(generator)["0->1"].weights[1].square()
        found += torch.autograd.grad(loss, [policy.values])[0] / 4000
    assert (found - wanted).abs().max() < 0.1 * wanted.abs().max()
    assert wanted.abs().max() > 0.01


def test_a_step_descends_on_a_sample_and_then_trains_on_another():
    strategy, weights = make(learning_rate=0.01, weight_decay=0.0), smooth_weights(learning_rate=0.1)
    strategy.generator.manual_seed(9)
    other = torch.Generator().manual_seed(9)
    gates = strategy.policy.sample(other)
    loss = weights.loss(search_batch(0).valid, gates)
    gradient = weights.gradient(loss, of=strategy.policy.values)
    before = strategy.policy.values.detach().clone()
    reported = strategy.step(weights, search_batch(0))
    assert reported["valid_loss"] == pytest.approx(float(loss.detach()), abs=1e-12)
    moved = strategy.policy.values.detach() - before
    seen = gradient.abs() > 1e-9
    assert torch.equal(moved[seen].sign(), -gradient[seen].sign())
    with torch.no_grad():
        again = strategy.policy.sample(other)["0->1"].weights
    assert not torch.allclose(gates["0->1"].weights, again)


def test_the_divergence_pulls_concentrations_towards_one():
    strategy = make(divergence=100.0, learning_rate=0.05, weight_decay=0.0)
    assert float(strategy.policy.divergence()) > 0
    weights = smooth_weights(learning_rate=1e-9)
    for step in range(60):
        strategy.step(weights, search_batch(step))
    assert strategy.policy.values.detach().abs().max() < 0.2
    start = DirichletLogits(SPACE, torch.Generator(), spread=0.0).divergence()
    assert float(start.detach()) == pytest.approx(0, abs=1e-5)


def test_the_mean_is_discretized():
    strategy = make()
    rows = {name: row.detach() / row.detach().sum() for name, row in strategy.policy.concentrations().items()}
    for name, row in strategy.probabilities().items():
        assert row == pytest.approx(rows[name].tolist())
    assert strategy.best(lambda one: 0.0) == SPACE.decode(strategy.probabilities())


def test_excluded_options_have_no_weight():
    strategy = make(none="absent")
    for gate in strategy.policy.sample(strategy.generator).values():
        assert float(gate.weights[0]) == 0 and float(gate.weights.sum()) == pytest.approx(1)
    loss = smooth_weights().loss(batch(0), strategy.policy.sample(strategy.generator))
    (gradient,) = torch.autograd.grad(loss, [strategy.policy.values])
    assert torch.isfinite(gradient).all() and isinstance(strategy.policy.mixture()["0->1"], Gate)


def test_the_global_generator_stays_untouched():
    before = torch.get_rng_state()
    make().policy.sample(torch.Generator().manual_seed(0))
    assert torch.equal(before, torch.get_rng_state())


def test_it_names_its_resolve():
    assert make().resolve() == EveryOption() and make(parts=4).resolve() == PartialChannels(parts=4)
