import math

import pytest
import torch
from sampler_toys import seeded
from torch import Tensor

from archloom.core.errors import SettingError
from archloom.samplers import laplace_evidence

OBSERVATIONS, PRECISION, NOISE = 40, 0.7, 2.5  # the last two as precisions


def regression(*, orthogonal: bool) -> tuple[Tensor, Tensor]:
    design = torch.randn(OBSERVATIONS, 5, dtype=torch.float64, generator=seeded(0))
    if orthogonal:
        design = torch.linalg.qr(design)[0] * torch.tensor([1.0, 2.0, 3.0, 0.5, 4.0])
    truth = torch.randn(5, dtype=torch.float64, generator=seeded(1))
    noise = torch.randn(OBSERVATIONS, dtype=torch.float64, generator=seeded(2)) / math.sqrt(NOISE)
    return design, design @ truth + noise


def marginal(design: Tensor, target: Tensor) -> float:
    """The evidence itself: the target is Gaussian with the weights integrated out."""
    covariance = design @ design.T / PRECISION + torch.eye(OBSERVATIONS, dtype=torch.float64) / NOISE
    zero = torch.zeros(OBSERVATIONS, dtype=torch.float64)
    return float(torch.distributions.MultivariateNormal(zero, covariance).log_prob(target))


def most_probable(design: Tensor, target: Tensor) -> tuple[Tensor, Tensor, float]:
    """Weights, Hessian of the summed loss, log-likelihood."""
    hessian = NOISE * design.T @ design
    weights = torch.linalg.solve(hessian + PRECISION * torch.eye(5, dtype=torch.float64), NOISE * design.T @ target)
    residual = target - design @ weights
    constant = 0.5 * OBSERVATIONS * math.log(NOISE / (2 * math.pi))
    return weights, hessian, float(constant - 0.5 * NOISE * residual.square().sum())


def test_exact_for_an_orthogonal_design():
    design, target = regression(orthogonal=True)
    weights, hessian, likelihood = most_probable(design, target)
    found = laplace_evidence(
        log_likelihood=likelihood, weights=weights, curvature=hessian.diagonal(), precision=PRECISION
    )
    assert found == pytest.approx(marginal(design, target), abs=1e-9)


def test_exact_for_any_design_with_the_determinant():
    design, target = regression(orthogonal=False)
    weights, hessian, likelihood = most_probable(design, target)
    known = {
        "log_likelihood": likelihood,
        "weights": weights,
        "curvature": hessian.diagonal(),
        "precision": PRECISION,
    }
    determinant = float(torch.logdet(hessian + PRECISION * torch.eye(5, dtype=torch.float64)))
    assert laplace_evidence(**known, log_determinant=determinant) == pytest.approx(marginal(design, target), abs=1e-9)
    # a diagonal alone makes the determinant larger (Hadamard), and so the evidence smaller
    assert laplace_evidence(**known) < marginal(design, target) - 0.05


def test_every_term_matters():
    """A sign turned in any of the four terms would be seen: twice each of them is far above what is allowed."""
    design, target = regression(orthogonal=True)
    weights, hessian, likelihood = most_probable(design, target)
    energy = 0.5 * PRECISION * float(weights.square().sum())
    volume = 0.5 * float((hessian.diagonal() + PRECISION).log().sum())
    prior = 0.5 * 5 * math.log(PRECISION)
    terms = {"likelihood": likelihood, "energy": -energy, "prior": prior, "volume": -volume}
    wanted = marginal(design, target)
    assert sum(terms.values()) == pytest.approx(wanted, abs=1e-9)
    for name, term in terms.items():
        assert abs(sum(terms.values()) - 2 * term - wanted) > 0.5, name


def test_weights_of_any_shape_and_precision():
    weights, curvature = torch.ones(2, 3), torch.full((2, 3), 4.0)
    found = laplace_evidence(log_likelihood=-1.0, weights=weights, curvature=curvature, precision=2.0)
    assert found == pytest.approx(-1 - 6 + 3 * math.log(2) - 3 * math.log(6))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"precision": 0.0}, "precision must be above 0, got 0.0"),
        ({"curvature": torch.ones(3)}, "curvature must be one value per weight, 0 or more"),
        ({"curvature": torch.tensor([1.0, -1.0])}, "curvature must be one value per weight, 0 or more"),
    ],
)
def test_bad_values_are_one_clear_line(wrong, said):
    with pytest.raises(SettingError) as raised:
        laplace_evidence(
            **{
                "log_likelihood": 0.0,
                "weights": torch.zeros(2),
                "curvature": torch.ones(2),
                "precision": 1.0,
                **wrong,
            }
        )
    assert raised.value.problems == (said,)
