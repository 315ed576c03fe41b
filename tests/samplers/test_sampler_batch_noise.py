import pytest
import torch
from sampler_toys import seeded, zeros
from torch import Tensor

from archloom.core.errors import SettingError
from archloom.samplers import BatchNoise, BfgsPosterior
from archloom.samplers.batch_noise import Spectrum, persisting_share, shrink_covariance

IMAGES, BATCH, BATCHES, SIZE, DECAY = 1_000, 24, 6, 4, 0.01


class Regression:
    """A linear regression whose posterior is known, and a closure that sees a few of its observations."""

    unseen = 1 - BATCH * BATCHES / IMAGES
    in_turn = False

    def __init__(self, theta: Tensor, *, uneven: bool) -> None:
        self.generator, self.theta = seeded(0), theta
        scales = torch.logspace(0, -0.7, SIZE, dtype=torch.float64)
        self.inputs = torch.randn(IMAGES, SIZE, dtype=torch.float64, generator=self.generator) * scales
        noise = torch.randn(IMAGES, dtype=torch.float64, generator=self.generator)
        if uneven:  # gradients then spread more along the first direction than the curvature says
            noise *= 1 + 2 * self.inputs[:, 0].abs()
        self.targets = self.inputs.sum(dim=1) + noise
        hessian = self.inputs.T @ self.inputs / IMAGES + DECAY * torch.eye(SIZE, dtype=torch.float64)
        self.inverse = torch.linalg.inv(hessian)
        self.mean = self.inverse @ (self.inputs.T @ self.targets / IMAGES)
        self.gradients: list[Tensor] = []

    def __call__(self) -> Tensor:
        seen = torch.randperm(IMAGES, generator=self.generator)[: BATCH * BATCHES].view(BATCHES, BATCH)
        errors = [self.inputs[one] @ self.theta.detach() - self.targets[one] for one in seen]
        self.gradients = [self.inputs[one].T @ error / BATCH for one, error in zip(seen, errors, strict=True)]
        self.theta.grad = torch.stack(self.gradients).mean(dim=0)
        return torch.zeros(())

    def repeat(self, count: int) -> Tensor:
        raise NotImplementedError


def variance_ratio(*, uneven: bool, subtract: bool, rate: float = 0.2, steps: int = 4_500) -> float:
    """Return the mean variance of a chain on mini-batches, in units of its posterior's."""
    theta = zeros(SIZE)
    closure = Regression(theta, uneven=uneven)
    settings = {"observations": IMAGES, "lr": rate, "decay": DECAY, "step_clip": 0.0, "noise_limit": 0.0}
    sampler = BfgsPosterior([theta], generator=seeded(1), curvature="fixed", subtract_batch_noise=subtract, **settings)
    sampler.inverse.matrix = closure.inverse
    draws = []
    for _ in range(steps):
        sampler.step(closure)
        draws.append(theta.detach().clone())
    whitened = torch.linalg.solve(
        torch.linalg.cholesky(closure.inverse / IMAGES), (torch.stack(draws[500:]) - closure.mean).T
    )
    return float(whitened.square().mean())


@pytest.mark.parametrize(("uneven", "hotter"), [(False, 1.4), (True, 3.0)])
def test_a_chain_on_batches_keeps_its_posterior(uneven, hotter):
    """Without the subtraction the same chain is several times too wide: the control that must fail."""
    assert variance_ratio(uneven=uneven, subtract=True) == pytest.approx(1.0, abs=0.15)
    assert variance_ratio(uneven=uneven, subtract=False, steps=1_500) > hotter


def test_the_covariance_is_that_of_a_mean_without_replacement():
    """Means of 6 batches of 24 of 1,000 images, against the covariance estimated from the spread within each draw."""
    theta = zeros(SIZE)
    closure, noise = Regression(theta, uneven=True), BatchNoise(SIZE)
    means = []
    for _ in range(3_000):
        closure()
        means.append(theta.grad.clone())
        noise.observe(closure.gradients, closure.unseen)
    seen = torch.stack(means).T.cov()
    assert (noise.covariance - seen).norm() / seen.norm() < 0.12
    assert noise.covariance.trace() / seen.trace() == pytest.approx(1.0, abs=0.08)


def test_all_images_have_no_noise_and_one_batch_shows_none():
    noise = BatchNoise(2)
    noise.observe([torch.ones(2)], 0.5)
    assert not noise.is_known
    noise.observe([torch.ones(2), torch.zeros(2)], 0.0)
    assert noise.is_known and not noise.covariance.any()
    spectrum = noise.spectrum(torch.eye(2, dtype=torch.float64), observations=10.0)
    rates = spectrum.limit_rates(0.3)
    assert rates.tolist() == pytest.approx([0.3, 0.3])
    assert spectrum.left_to_inject(rates).tolist() == pytest.approx([0.3 * 1.7] * 2)


def test_rates_fall_until_the_batches_alone_are_the_noise():
    spectrum = Spectrum(torch.tensor([0.0, 9.0, 99.0]), torch.eye(3))
    rates = spectrum.limit_rates(0.1)
    assert rates.tolist() == pytest.approx([0.1, 0.1, 0.02])
    injected = spectrum.left_to_inject(rates)
    assert injected.tolist() == pytest.approx([0.19, 0.19 - 0.01 * 9, 0.0], abs=1e-6)
    stationary = (rates.square() * spectrum.variances + injected) / (rates * (2 - rates))
    assert stationary.tolist() == pytest.approx([1.0] * 3, abs=1e-5)


@pytest.mark.parametrize(
    ("rate", "batches", "all_batches", "rough"),
    [(0.1, 27, 78, 0.14), (0.5, 27, 78, 0.63), (0.1, 4, 390, 0.83), (0.1, 3, 10, 0.15), (0.3, 9, 10, 1.1)],
)
def test_noise_of_batches_in_turn_mostly_cancels_in_a_chain(rate, batches, all_batches, rough):
    """Against a simulation: passes of exchangeable numbers without a mean, averaged over the batches of a draw."""
    draws = 60_000
    passes = torch.randn(draws * batches // all_batches + 1, all_batches, dtype=torch.float64, generator=seeded(0))
    noise = (passes - passes.mean(dim=1, keepdim=True)).flatten()[: draws * batches].view(-1, batches).mean(dim=1)
    place, squares = 0.0, 0.0
    for one in noise.tolist():
        place = (1 - rate) * place + rate * one
        squares += place * place / draws
    own = (1 - batches / all_batches) / batches  # of one draw's mean
    seen = squares / (own * rate / (2 - rate))
    wanted = persisting_share(torch.tensor([rate]).double(), batches=batches, unseen=1 - batches / all_batches)
    assert float(wanted) == pytest.approx(seen, rel=0.05) == pytest.approx(rough, rel=0.1)


def test_all_of_the_noise_persists_at_full_steps_and_where_nothing_was_left_out():
    rates = torch.tensor([0.2, 1.0]).double()
    assert persisting_share(rates, batches=6, unseen=0.0).tolist() == [1.0, 1.0]
    assert float(persisting_share(rates, batches=1, unseen=0.999)[1]) == pytest.approx(1.0, abs=1e-6)


def test_shrinking_keeps_the_trace_and_leaves_certain_covariances_alone():
    sample = torch.tensor([4.0, 1.0, 1.0]).diag().double()
    few, many = shrink_covariance(sample, 3), shrink_covariance(sample, 1e9)
    assert few.trace() == pytest.approx(6.0) and many.trace() == pytest.approx(6.0)
    assert torch.allclose(many, sample, atol=1e-6)
    assert few[0, 0] < 3.5 and few[1, 1] > 1.2
    assert torch.equal(shrink_covariance(2 * torch.eye(3).double(), 5), 2 * torch.eye(3).double())


def test_only_the_exact_rule_can_leave_noise_out():
    with pytest.raises(SettingError, match="subtract_batch_noise must go with the noise rule exact, got 'lr'"):
        BfgsPosterior([zeros(2)], generator=seeded(0), observations=10, noise_rule="lr", subtract_batch_noise=True)
