import pytest
import torch
from smooth import SPACE, batch, smooth_weights

from archloom.core.errors import SettingError
from archloom.policies import sample_gumbel_noise
from archloom.strategies.base import SearchBatch
from archloom.strategies.snas import Snas
from archloom.supernet import Gate


def make(**settings) -> Snas:
    strategy = Snas(SPACE, torch.Generator().manual_seed(0), **settings)
    strategy.policy.double()
    with torch.no_grad():
        strategy.policy.values.copy_(torch.randn(12, generator=torch.Generator().manual_seed(4)))
    strategy.generator.manual_seed(9)
    return strategy


def at(progress: float, *, epoch: int = 0) -> SearchBatch:
    return SearchBatch(batch(0), (), epoch, 4, progress)


def drawn_weights(values: torch.Tensor, temperature: float) -> list[torch.Tensor]:
    """The mixture that the strategy's next draw gives, written out."""
    generator = torch.Generator().manual_seed(9)
    noise = [sample_gumbel_noise((4,), generator).double() for _ in SPACE.decisions]
    perturbed = [(row + extra) / temperature for row, extra in zip(values.split(4), noise, strict=True)]
    return [torch.exp(row) / torch.exp(row).sum() for row in perturbed]


def joint_gradients(strategy: Snas, temperature: float):
    """Of the training loss by logits and weights at once, by autograd through the drawn mixture."""
    weights, values = smooth_weights(), strategy.policy.values.detach().clone().requires_grad_()
    mixed = drawn_weights(values, temperature)
    gates = {d.name: Gate(weights=row) for d, row in zip(SPACE.decisions, mixed, strict=True)}
    loss = weights.loss(batch(0), gates)
    by_logits, *by_weights = torch.autograd.grad(loss, [values, *weights.parameters.values()])
    return loss.item(), by_logits, dict(zip(weights.parameters, by_weights, strict=True))


@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_weights_and_logits_move_along_the_gradients_of_one_loss(temperature):
    strategy = make(temperature_start=temperature, temperature_end=temperature, weight_decay=0.0, learning_rate=0.01)
    loss, by_logits, by_weights = joint_gradients(strategy, temperature)
    weights = smooth_weights(learning_rate=0.1, momentum=0.0, weight_decay=0.0, clip=0.0)
    logits = strategy.policy.values.detach().clone()
    before = {name: value.detach().clone() for name, value in weights.parameters.items()}
    metrics = strategy.step(weights, at(0.0))
    assert metrics["train_loss"] == pytest.approx(loss, abs=1e-12)
    assert (strategy.policy.values.grad - by_logits).abs().max() < 1e-12
    assert by_logits.abs().max() > 1e-4
    assert torch.equal((strategy.policy.values.detach() - logits).sign(), -by_logits.sign())  # Adam's first step
    for name, value in weights.parameters.items():
        assert (value - (before[name] - 0.1 * by_weights[name])).abs().max() < 1e-12


def test_every_batch_draws_anew():
    strategy, weights = make(), smooth_weights()
    strategy.step(weights, at(0.0))
    first = strategy.generator.get_state()
    strategy.step(weights, at(0.0))
    assert not torch.equal(first, strategy.generator.get_state())


def test_no_validation_batches_are_asked_for():
    assert [make().validation.at(position) for position in range(20)] == [0] * 20
    assert make().validation.before(20) == 0


@pytest.mark.parametrize(("progress", "wanted"), [(0.0, 1.0), (0.5, 0.515), (1.0, 0.03)])
def test_temperature_falls_linearly_over_the_search(progress, wanted):
    strategy = make()
    assert strategy.temperature(at(progress)) == pytest.approx(wanted)
    assert strategy.step(smooth_weights(), at(progress))["temperature"] == pytest.approx(wanted)


def test_while_warming_up_only_the_weights_move():
    strategy, weights = make(warmup=0.5), smooth_weights()
    logits, head = strategy.policy.values.detach().clone(), weights._network.head.weight.detach().clone()
    strategy.step(weights, at(0.0, epoch=1))
    assert torch.equal(strategy.policy.values, logits)
    assert not torch.equal(weights._network.head.weight, head)
    strategy.step(weights, at(0.5, epoch=2))
    assert not torch.equal(strategy.policy.values, logits)


def test_many_steps_descend():
    strategy, weights = make(learning_rate=0.05), smooth_weights(learning_rate=0.1)
    start = weights.loss(batch(0), strategy.policy.mixture())
    for number in range(60):
        strategy.step(weights, at(number / 60))
    assert weights.loss(batch(0), strategy.policy.mixture()) < 0.8 * start


def test_the_paper_settings_are_accepted_and_others_refused_by_name():
    make(**Snas.presets["paper"]["strategy"])
    with pytest.raises(SettingError, match=r"temperature_end must lie in \(0, 1.0\], got 2"):
        make(temperature_end=2)
    with pytest.raises(SettingError, match="temperature_start must be above 0, got 0"):
        make(temperature_start=0)
