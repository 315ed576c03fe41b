"""What both samplers promise: the law of their draws, gradient descent as their limit, and an end in words."""

import math
from functools import cache

import pytest
import torch
from sampler_toys import (
    BURN_IN,
    CHAINS,
    OBSERVATIONS,
    Given,
    compare,
    exact_bfgs,
    exact_diagonal,
    gibbs,
    joint_posterior,
    regression,
    seeded,
    stationary_law,
    zeros,
)
from torch import nn

from archloom.core.errors import DivergedError, SettingError
from archloom.samplers import NOISE_RULES, BfgsPosterior, DiagonalLbfgsPosterior, PosteriorSampler

SAMPLERS = (BfgsPosterior, DiagonalLbfgsPosterior)
BOTH = pytest.mark.parametrize("kind", SAMPLERS)

# The chains have 10,000 draws at learning rate 1 and 20,000 at 0.1. At 1 they are almost independent: a variance has a
# standard error of sqrt(2 / 10,000) = 1.4 %, five of which fit into the 7 % allowed. At 0.1 the squares forget 19 % a
# step, so that 20,000 count for 2,100: a standard error of 3 %, five of which fit into 15 %.
FULL = {"steps": 500 + BURN_IN, "lr": 1.0}
DAMPED = {"steps": 1000 + BURN_IN, "lr": 0.1}
SHORT = {"steps": 350 + BURN_IN, "lr": 0.1}  # standard error 5 %: enough to tell wrong rules apart


# --- T1: both blocks on the same data


@cache
def full_newton_draws() -> torch.Tensor:
    return gibbs(regression(0), **FULL)


def test_full_newton_draws_follow_the_posterior():
    found = compare(full_newton_draws(), *joint_posterior(regression(0)))
    assert found.mean_error < 0.1
    assert found.variance_ratios.min() > 0.93 and found.variance_ratios.max() < 1.07
    assert found.correlation_error < 0.05


def test_damped_draws_follow_the_posterior_by_the_exact_rule():
    conditionals = regression(0)
    found = compare(gibbs(conditionals, **DAMPED), *joint_posterior(conditionals))
    assert found.mean_error < 0.3
    assert found.variance_ratios.min() > 0.85 and found.variance_ratios.max() < 1.15
    assert found.correlation_error < 0.1


def test_diagonal_draws_follow_the_posterior_of_an_orthogonal_design():
    conditionals = regression(0, orthogonal=True)
    draws = gibbs(conditionals, make=(exact_bfgs, exact_diagonal), **FULL)
    found = compare(draws, *joint_posterior(conditionals))
    assert found.mean_error < 0.1
    assert found.variance_ratios.min() > 0.93 and found.variance_ratios.max() < 1.07
    assert found.correlation_error < 0.05


@pytest.mark.parametrize("make", [exact_bfgs, exact_diagonal])
@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_the_wrong_sign_diverges(make, rate):
    draws = gibbs(regression(0, orthogonal=True), make=(make, make), steps=200, lr=rate, sign=-1.0)
    assert draws[-1].abs().max() > 1e8


def test_without_the_number_of_observations_the_posterior_is_as_much_too_wide():
    conditionals = regression(0)
    draws = gibbs(conditionals, steps=150 + BURN_IN, lr=1.0, observations=1)
    ratios = compare(draws, *joint_posterior(conditionals)).variance_ratios / OBSERVATIONS
    assert ratios.min() > 0.85 and ratios.max() < 1.15


@pytest.mark.parametrize(("rule", "least", "most"), [("one", 4.5, 6.0), ("lr", 0.45, 0.6), ("sgld", 0.9, 1.2)])
def test_other_rules_have_another_temperature(rule, least, most):
    conditionals = regression(0)
    ratios = compare(gibbs(conditionals, noise_rule=rule, **SHORT), *joint_posterior(conditionals)).variance_ratios
    assert least < ratios.mean() < most
    assert least * 0.9 < ratios.min() and ratios.max() < most * 1.1


@pytest.mark.parametrize("silence", [{"sample": False}, {"temperature": 0.0}])
def test_the_mean_alone_does_not_spread(silence):
    conditionals = regression(0)
    draws = gibbs(conditionals, steps=50 + BURN_IN, lr=1.0, **silence)
    mean, _ = joint_posterior(conditionals)
    assert draws[BURN_IN:].flatten(0, 1).var(dim=0).max() < 1e-12
    assert (draws[-1] - mean).abs().max() < 1e-9


def test_parallel_chains_are_independent():
    """Check the premise of the tests above."""
    draws = full_newton_draws()[BURN_IN:]
    between = draws[:, :, 0].T.corrcoef() - torch.eye(CHAINS)
    assert between.abs().max() < 5 / math.sqrt(len(draws))


# --- T2: each block on data of its own, which is no posterior but has a law


@pytest.mark.parametrize(
    ("length", "mean", "spread", "correlation"), [(FULL, 0.1, 0.07, 0.05), (DAMPED, 0.3, 0.15, 0.1)]
)
def test_blocks_on_different_data_follow_the_law_of_their_chain(length, mean, spread, correlation):
    conditionals = (regression(0)[0], regression(1)[1])
    draws = gibbs(conditionals, **length)
    found = compare(draws, *stationary_law(conditionals, length["lr"]))
    assert found.mean_error < mean
    assert (found.variance_ratios - 1).abs().max() < spread
    assert found.correlation_error < correlation
    other = compare(draws, *joint_posterior(conditionals))  # of the first block's data alone
    assert other.mean_error > 1


def test_the_law_of_the_chain_is_the_posterior_where_the_data_are_the_same():
    conditionals = regression(0)
    for rate in (1.0, 0.1):
        for law, posterior in zip(stationary_law(conditionals, rate), joint_posterior(conditionals), strict=True):
            assert (law - posterior).abs().max() < 1e-12


# --- T3: without curvature and noise there is gradient descent left, to the bit


def tensors() -> list[nn.Parameter]:
    generator = seeded(3)
    shapes = [(7, 5), (5,), (2, 3, 4), ()]
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


class Quartic:
    """A loss of batches that differ from step to step; the third tensor is no part of it."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._parameters, self._generator = parameters, seeded(4)

    def batch(self) -> None:
        self._targets = [torch.randn(p.shape, generator=self._generator) for p in self._parameters]

    def __call__(self) -> torch.Tensor:
        for parameter in self._parameters:
            parameter.grad = None
        parts = zip(self._parameters, self._targets, strict=True)
        loss = sum(((p - t).square() + 0.1 * p.pow(4)).mean() for n, (p, t) in enumerate(parts) if n != 2)
        assert isinstance(loss, torch.Tensor)
        loss.backward()
        return loss.detach()


def fifteen_steps(make) -> list[nn.Parameter]:
    parameters = tensors()
    optimizer, loss = make(parameters), Quartic(parameters)
    for _ in range(15):
        loss.batch()
        optimizer.step(loss)
    return parameters


@BOTH
def test_identity_without_noise_is_sgd_to_the_bit(kind):
    common = {"generator": seeded(0), "observations": 100, "lr": 0.1, "decay": 0.03, "curvature": "identity"}
    wanted = fifteen_steps(lambda parameters: torch.optim.SGD(parameters, lr=0.1, weight_decay=0.03))
    found = fifteen_steps(lambda parameters: kind(parameters, sample=False, **common))
    assert all(torch.equal(one, two) for one, two in zip(found, wanted, strict=True))
    start = tensors()
    assert torch.equal(found[2], start[2]) and not torch.equal(found[0], start[0])
    noisy = fifteen_steps(lambda parameters: kind(parameters, **common))
    assert max((one - two).abs().max() for one, two in zip(noisy, wanted, strict=True)) > 1e-2
    assert torch.equal(noisy[2], start[2])


@BOTH
def test_identity_takes_one_gradient(kind):
    for sample in (True, False):
        parameter = zeros(3)
        closure = Given([parameter], torch.ones_like)
        kind([parameter], generator=seeded(0), observations=9, sample=sample, curvature="identity").step(closure)
        assert closure.calls == 1


# --- T7: the covariance of a draw, by itself


INVERSE = torch.tensor(
    [[2.0, 0.5, 0.0, 0.3], [0.5, 1.0, 0.2, 0.0], [0.0, 0.2, 0.5, 0.1], [0.3, 0.0, 0.1, 4.0]]
).double()


def bfgs_draws(steps: int = 1000, **settings) -> torch.Tensor:
    """Some 20,000 movements [draws, 4] without a gradient, by a P that is known; 20 at once."""
    copies = 20
    parameter = zeros(copies, 4)
    settings = {"noise_limit": 0.0, "decay": 0.0, "observations": 50, "lr": 0.3, **settings}
    sampler = BfgsPosterior([parameter], generator=seeded(5), curvature="fixed", **settings)
    sampler.inverse.matrix = torch.block_diag(*[INVERSE] * copies)
    return movements(sampler, parameter, Given([parameter], torch.zeros_like), steps=steps)


def diagonal_draws(steps: int = 10, **settings) -> torch.Tensor:
    """The same by the diagonal of that P, which the closure tells."""
    parameter = zeros(2000, 4)
    free = {"memory": 0, "damping": 0.0, "noise_clip": 0.0}
    settings = {"noise_limit": 0.0, "decay": 0.0, "observations": 50, "lr": 0.3, **free, **settings}
    sampler = DiagonalLbfgsPosterior([parameter], generator=seeded(5), **settings)
    closure = Given([parameter], torch.zeros_like, INVERSE.diagonal().rsqrt())
    return movements(sampler, parameter, closure, steps=steps)


def movements(sampler: PosteriorSampler, parameter: nn.Parameter, closure: Given, *, steps: int) -> torch.Tensor:
    found = []
    for _ in range(steps):
        before = parameter.detach().clone()
        sampler.step(closure)
        found.append(parameter.detach() - before)
    return torch.cat(found)


def relative_error(draws: torch.Tensor, wanted: torch.Tensor) -> float:
    covariance = draws.T @ draws / len(draws)  # around zero: a draw without gradient has no mean
    return float((covariance - wanted).norm() / wanted.norm())


LAWS = [(bfgs_draws, INVERSE), (diagonal_draws, INVERSE.diagonal().diag())]


@pytest.mark.parametrize(("draw", "inverse"), LAWS)
def test_covariance_of_a_draw(draw, inverse):
    # 20,000 draws of 4 numbers and more: a standard error of about sqrt(5 / 20,000) = 1.6 %
    variance = 0.3 * (2 - 0.3) * 0.7 / 50
    found = draw(temperature=0.7)
    assert relative_error(found, variance * inverse) < 0.05
    for wrong in (variance / 0.7, variance * 50, variance / (2 - 0.3)):
        assert relative_error(found, wrong * inverse) > 0.15
    assert relative_error(found, variance * torch.linalg.inv(inverse)) > 0.3


@pytest.mark.parametrize(("draw", "inverse"), LAWS)
def test_noise_beyond_the_limit_is_clamped(draw, inverse):
    scale = math.sqrt(0.3 * (2 - 0.3) / 50)

    def numbers(**settings) -> torch.Tensor:
        root = torch.linalg.cholesky(inverse)
        return (torch.linalg.solve_triangular(root, draw(**settings).T, upper=False) / scale).abs()

    limited = numbers(noise_limit=1.5, steps=300 if draw is bfgs_draws else 5)
    assert limited.max() < 1.5 + 1e-9
    beyond = math.erfc(1.5 / math.sqrt(2))  # put to the limit, neither dropped nor drawn again
    error = math.sqrt(beyond * (1 - beyond) / limited.numel())
    assert abs((limited > 1.5 - 1e-9).double().mean() - beyond) < 4 * error
    assert numbers(steps=50).max() > 3


def test_rules():
    at = {name: rule(0.1) for name, rule in NOISE_RULES.items()}
    assert at == pytest.approx({"exact": 0.19, "lr": 0.1, "sgld": 0.2, "one": 1.0})
    assert NOISE_RULES["exact"](1.0) == 1.0


@BOTH
@pytest.mark.parametrize("rule", NOISE_RULES)
def test_noise_scale(kind, rule):
    sampler = kind([zeros(2)], generator=seeded(0), observations=50, lr=0.3, temperature=0.7, noise_rule=rule)
    assert sampler.noise_scale() == pytest.approx(math.sqrt(NOISE_RULES[rule](0.3) * 0.7 / 50))
    sampler.param_groups[0]["lr"] = 0.2  # as a schedule does
    assert sampler.noise_scale() == pytest.approx(math.sqrt(NOISE_RULES[rule](0.2) * 0.7 / 50))


# --- settings, and the end


@BOTH
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"observations": 0}, "observations must be above 0, got 0"),
        ({"observations": math.nan}, "observations must be above 0, got nan"),
        ({"lr": 0.0}, "lr must lie in (0, 2), where the step converges, got 0.0"),
        ({"lr": 2.0}, "lr must lie in (0, 2), where the step converges, got 2.0"),
        ({"decay": -1e-4}, "decay must be 0 or more, got -0.0001"),
        ({"temperature": -1}, "temperature must be 0 or more, got -1"),
        ({"noise_rule": "langevin"}, "noise_rule must be one of exact, lr, sgld, one, got 'langevin'"),
        ({"noise_limit": -3}, "noise_limit must be 0 (off) or more, got -3"),
        ({"step_clip": -1}, "step_clip must be 0 (off) or more, got -1"),
        ({"smallest": 0}, "the bounds of P must be 0 < smallest <= largest, got 0 and"),
        ({"smallest": 2, "largest": 1}, "the bounds of P must be 0 < smallest <= largest, got 2 and 1"),
        ({"curvature": "newton"}, "got 'newton'"),
    ],
)
def test_bad_settings_are_one_clear_line(kind, setting, said):
    with pytest.raises(SettingError) as raised:
        kind([zeros(2)], generator=seeded(0), **{"observations": 10, **setting})
    assert said in str(raised.value) and len(raised.value.problems) == 1


@BOTH
def test_groups_may_differ_in_their_decay_only(kind):
    with pytest.raises(SettingError, match="lr must be the same for all parameter groups"):
        kind([{"params": [zeros(2)]}, {"params": [zeros(2)], "lr": 0.5}], generator=seeded(0), observations=10)
    one, two = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    groups = [{"params": [one], "decay": 0.5}, {"params": [two], "decay": 0.0}]
    sampler = kind(groups, generator=seeded(0), observations=10, lr=0.1, sample=False, curvature="identity")
    sampler.step(Given([one, two], torch.zeros_like))
    assert torch.equal(one, torch.full((2,), 0.95)) and torch.equal(two, torch.ones(2))


@BOTH
@pytest.mark.parametrize("curvature", ["bfgs", "identity"])
@pytest.mark.parametrize("sample", [True, False])
@pytest.mark.parametrize(
    ("loss", "gradient", "named"),
    [
        (math.nan, math.nan, "the loss became nan"),
        (math.inf, 1.0, "the loss became inf"),
        (1.0, math.nan, "nan"),
        (1.0, math.inf, "became"),
    ],
)
def test_a_chain_that_diverges_stops_with_a_diagnosis(kind, curvature, sample, loss, gradient, named):
    parameter = nn.Parameter(torch.tensor([1.0, -2.0]))
    chosen = "lbfgs" if (kind, curvature) == (DiagonalLbfgsPosterior, "bfgs") else curvature
    settings = {"observations": 77, "lr": 0.125, "temperature": 0.375, "curvature": chosen, "sample": sample}
    sampler = kind([parameter], generator=seeded(0), **settings)
    sampler.step(Given([parameter], lambda x: 0.1 * x))
    before = parameter.detach().clone()
    with pytest.raises(DivergedError) as raised:
        sampler.step(Given([parameter], lambda x: torch.full_like(x, gradient), loss=loss))
    said = str(raised.value)
    assert named in said
    for part in (
        "draw 2",
        kind.__name__,
        "lr 0.125",
        "temperature 0.375",
        "observations 77",
        "lower lr or temperature",
    ):
        assert part in said
    assert "\n" not in said
    assert torch.equal(parameter, before)
