"""Every gradient of mathematics.md C, against its formula, in double precision."""

import pytest
import torch

from archloom.policies import Logits, gumbel, sample_gumbel_gates, sample_gumbel_noise
from archloom.spaces import Decision, Nb201
from archloom.supernet import Choice

SPACE = Nb201(nodes=2, operations=("a", "b", "c", "d"))
NAME = "0->1"


class Times(torch.nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(factor, dtype=torch.float64))

    def forward(self, x):
        return x * self.factor


@pytest.fixture
def policy() -> Logits:
    policy = Logits(SPACE, torch.Generator().manual_seed(1)).double()
    with torch.no_grad():
        policy.values.copy_(torch.tensor([0.3, -0.2, 0.5, 0.1]))
    return policy


@pytest.fixture
def choice() -> Choice:
    factors = {"a": 1.5, "b": -0.7, "c": 0.2, "d": 3.0}
    return Choice(Decision(NAME, SPACE.operations), {name: Times(factor) for name, factor in factors.items()})


def drawn(policy: Logits, seed: int, temperature: float) -> tuple[torch.Tensor, int]:
    """The soft sample and the index that the same seed gives."""
    noise = sample_gumbel_noise((4,), torch.Generator().manual_seed(seed)).double()
    soft = ((policy.values.detach() + noise) / temperature).softmax(dim=0)
    return soft, int(soft.argmax())


def effects(choice: Choice, x: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """G_j = <dL/dy, O_j(x)> for the linear loss <direction, y>."""
    return torch.stack([(direction * choice.candidates[name](x)).sum() for name in SPACE.operations]).detach()


@pytest.mark.parametrize("gradient", ["selected", "all", "nb201_code"])
@pytest.mark.parametrize("temperature", [10.0, 1.0, 0.1])
@pytest.mark.parametrize("seed", range(6))
def test_gradient_equals_its_formula(policy, choice, gradient, temperature, seed):
    x = torch.randn(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    direction = torch.randn(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(8))
    gates = sample_gumbel_gates(policy, torch.Generator().manual_seed(seed), temperature=temperature, gradient=gradient)
    output = choice(x, gates)
    soft, index = drawn(policy, seed, temperature)
    assert torch.allclose(output, choice.candidates[SPACE.operations[index]](x))  # forward is the hard sample

    (computed,) = torch.autograd.grad((direction * output).sum(), [policy.values])
    effect = effects(choice, x, direction)
    if gradient == "selected":
        only = torch.zeros(4, dtype=torch.float64)
        only[index] = effect[index]
        effect = only
    elif gradient == "nb201_code":
        bare = direction.sum().repeat(4)
        bare[index] = effect[index]
        effect = bare
    wanted = soft * (effect - (soft * effect).sum()) / temperature
    assert (computed - wanted).abs().max() < 1e-12
    assert abs(computed.sum()) < 1e-12  # a row moves, its mean does not


def test_only_the_selected_option_gets_gradient(policy, choice):
    gates = sample_gumbel_gates(policy, torch.Generator().manual_seed(0), temperature=1.0)
    choice(torch.ones(2, dtype=torch.float64), gates).sum().backward()
    selected = SPACE.operations[gates[NAME].index]
    with_gradient = [name for name in SPACE.operations if choice.candidates[name].factor.grad is not None]
    assert with_gradient == [selected]


@pytest.mark.parametrize("temperature", [10.0, 0.1])
def test_options_are_sampled_with_their_softmax_probability_at_any_temperature(policy, temperature):
    gates = sample_gumbel_gates(policy, torch.Generator().manual_seed(3), temperature=temperature, images=200_000)
    frequency = torch.bincount(gates[NAME].index, minlength=4) / 200_000
    assert (frequency - policy.values.detach().softmax(dim=0)).abs().max() < 0.005


def test_every_image_draws_for_itself_and_weighs_its_own_option(policy, choice):
    gates = sample_gumbel_gates(policy, torch.Generator().manual_seed(3), temperature=1.0, images=50)
    assert gates[NAME].index.shape == (50,)
    assert gates[NAME].weights.shape == (50, 4)
    x = torch.ones(50, 1, dtype=torch.float64)
    factors = torch.stack([choice.candidates[name].factor for name in SPACE.operations])
    assert torch.allclose(choice(x, gates).squeeze(1), factors[gates[NAME].index])


@pytest.mark.parametrize(
    ("temperature", "smallest", "largest"), [(10.0, 0.01, 0.1), (1.0, 0.2, 0.6), (0.05, 0.45, 0.55)]
)
def test_selected_gradient_approaches_that_of_the_expected_loss_as_temperature_falls(
    policy, temperature, smallest, largest
):
    """For a loss that is linear in the output, E[L] = sum p_k G_k is known exactly.

    Only the winner of a near tie passes gradient on, so that half of the true gradient is the limit.
    """
    effect = torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64)
    probabilities = policy.values.detach().softmax(dim=0)
    true = probabilities * (effect - (probabilities * effect).sum())
    gates = sample_gumbel_gates(policy, torch.Generator().manual_seed(5), temperature=temperature, images=400_000)
    weights, index = gates[NAME].weights, gates[NAME].index
    (mean,) = torch.autograd.grad((weights.gather(1, index[:, None])[:, 0] * effect[index]).mean(), [policy.values])
    assert torch.cosine_similarity(mean, true, dim=0) > 0.97
    assert smallest < mean.norm() / true.norm() < largest


def test_infinite_noise_is_sampled_again(monkeypatch):
    draws = iter([torch.tensor([1.0, float("inf"), 2.0]), torch.tensor([9.0, 5.0, 9.0])])
    monkeypatch.setattr(gumbel, "_sample_once", lambda shape, generator: next(draws))
    assert sample_gumbel_noise((3,), torch.Generator()).tolist() == [1.0, 5.0, 2.0]


def test_noise_is_standard_gumbel():
    noise = sample_gumbel_noise((200_000,), torch.Generator().manual_seed(0))
    assert noise.mean().item() == pytest.approx(0.5772, abs=0.01)
    assert noise.var().item() == pytest.approx(torch.pi**2 / 6, abs=0.03)
