import math

import pytest
import torch
from sampler_toys import seeded
from torch import nn

from archloom.samplers import draw_precision

DRAWS = 6_000


def draws(parameters: list[torch.Tensor], *, shape: float, rate: float, count: int = DRAWS) -> torch.Tensor:
    generator = seeded(0)
    return torch.tensor([draw_precision(parameters, generator, shape=shape, rate=rate) for _ in range(count)]).double()


@pytest.mark.parametrize(("shape", "rate"), [(2.0, 0.5), (0.5, 3.0)])
def test_draws_have_the_mean_and_variance_of_their_gamma(shape, rate):
    parameters = [nn.Parameter(torch.tensor([[1.0, -2.0], [0.5, 0.0]])), nn.Parameter(torch.tensor([3.0]))]
    posterior_shape, posterior_rate = shape + 5 / 2, rate + (1 + 4 + 0.25 + 9) / 2
    found = draws(parameters, shape=shape, rate=rate)
    mean, variance = posterior_shape / posterior_rate, posterior_shape / posterior_rate**2
    assert abs(found.mean() - mean) < 4 * math.sqrt(variance / DRAWS)
    # the variance of a variance, by the fourth moment of a Gamma: 3 + 6/shape
    assert abs(found.var() / variance - 1) < 4 * math.sqrt((2 + 6 / posterior_shape) / DRAWS)
    assert abs(found.mean() / (posterior_shape * posterior_rate) - 1) > 0.5  # rate, not scale
    assert abs((shape + 5) / posterior_rate / mean - 1) > 0.2  # half a count for each, not a whole one


def test_finds_the_precision_of_known_data():
    """With many parameters the prior hardly matters, and the draws gather around the precision that made them."""
    truth, count = 4.0, 3000
    weights = torch.randn(count, generator=seeded(1)) / math.sqrt(truth)
    found = draws([weights], shape=1.0, rate=1.0, count=500)
    spread = truth * math.sqrt(2 / count)
    assert abs(found.mean() - truth) < 4 * spread
    assert found.std() == pytest.approx(spread, rel=0.2)


def test_without_parameters_the_prior_is_left():
    found = draws([], shape=3.0, rate=2.0)
    assert abs(found.mean() - 1.5) < 4 * math.sqrt(0.75 / DRAWS)


@pytest.mark.parametrize("temperature", [0.25, 4.0])
def test_drawing_parameters_and_then_their_precision_keeps_its_prior_at_any_temperature(temperature):
    """Without data, a sweep over both leaves the Gamma prior of the precision as it was.

    Ten logits in two centred rows have eight free directions. Counting ten, or leaving the temperature out, does not.
    """
    shape, rate, generator, count = 6.0, 3.0, seeded(2), 4_000
    precisions = torch._standard_gamma(torch.full((count,), shape, dtype=torch.float64), generator=generator) / rate

    def mean_after_sweep(constraints: int, assumed: float) -> float:
        found = []
        for precision in precisions:
            values = torch.randn(2, 5, dtype=torch.float64, generator=generator) * (temperature / precision).sqrt()
            values = values - values.mean(dim=1, keepdim=True)
            options = {"shape": shape, "rate": rate, "constraints": constraints, "temperature": assumed}
            found.append(draw_precision([values], generator, **options))
        return sum(found) / count

    assert mean_after_sweep(2, temperature) == pytest.approx(shape / rate, rel=0.03)
    assert mean_after_sweep(0, temperature) > 1.05 * shape / rate
    assert abs(mean_after_sweep(2, 1.0) / (shape / rate) - 1) > 0.2


def test_leaves_the_global_generator_alone_and_follows_its_own():
    before = torch.get_rng_state()
    one, two = (draw_precision([torch.ones(3)], seeded(7), shape=1.0, rate=1.0) for _ in range(2))
    assert one == two
    assert one != draw_precision([torch.ones(3)], seeded(8), shape=1.0, rate=1.0)
    assert torch.equal(before, torch.get_rng_state())
