from dataclasses import replace

import pytest
import torch
from smooth import SPACE, search_batch, smooth_weights

from archloom.core.errors import SettingError
from archloom.strategies.gdas import Gdas


def make(**settings) -> Gdas:
    strategy = Gdas(SPACE, torch.Generator().manual_seed(0), **settings)
    strategy.policy.double()
    return strategy


class Spy:
    """Shared weights that note what they are asked."""

    def __init__(self, weights):
        self.weights, self.calls = weights, []

    def fit(self, batch, gates):
        self.calls.append(("fit", batch, gates))
        return self.weights.fit(batch, gates)

    def gradient(self, value, *, of):
        return self.weights.gradient(value, of=of)

    def step_result(self, batch, gates):
        self.calls.append(("evaluate", batch, gates))
        return self.weights.step_result(batch, gates)


@pytest.mark.parametrize("epochs", [1, 5])
@pytest.mark.parametrize(("progress", "wanted"), [(0.0, 10.0), (0.25, 7.75), (1.0, 1.0)])
def test_temperature_falls_linearly_over_the_steps_also_of_a_single_epoch(progress, wanted, epochs):
    batch = replace(search_batch(0, epoch=0, epochs=epochs), progress=progress)
    assert make(temperature_end=1.0).temperature(batch) == pytest.approx(wanted)


def test_a_step_fits_on_training_data_then_judges_on_validation_data_with_a_path_of_its_own():
    strategy, spy, batch = make(), Spy(smooth_weights()), search_batch(0)
    metrics = strategy.step(spy, batch)
    (first, trained_on, trained_gates), (second, evaluated_on, evaluated_gates) = spy.calls
    assert (first, second) == ("fit", "evaluate")
    assert trained_on is batch.train
    assert evaluated_on is batch.valid
    soft = [[gate.weights for gate in gates.values()] for gates in (trained_gates, evaluated_gates)]
    assert not torch.equal(torch.cat(soft[0]), torch.cat(soft[1])) or trained_gates != evaluated_gates
    assert metrics["temperature"] == 10.0


def test_the_two_paths_of_a_step_are_independent_draws():
    strategy, spy = make(), Spy(smooth_weights())
    for seed in range(60):
        strategy.step(spy, search_batch(seed))
    indices = [[gate.index for gate in gates.values()] for _, _, gates in spy.calls]
    same = sum(one == two for one, two in zip(indices[::2], indices[1::2], strict=True))
    assert same < 10  # of 60; one in 64 agrees at random, all of them if both used one sample


def test_architecture_step_descends_along_the_gradient_of_the_judged_path():
    strategy, weights, batch = make(learning_rate=0.01, weight_decay=0.0), smooth_weights(), search_batch(0)
    spy, before = Spy(weights), strategy.policy.values.detach().clone()
    strategy.step(spy, batch)
    gradient = strategy.policy.values.grad
    moved = strategy.policy.values.detach() - before
    assert gradient.abs().sum() > 0
    assert torch.equal(moved.sign()[gradient != 0], -gradient.sign()[gradient != 0])  # Adam's first step


def test_per_sample_sampling_draws_one_option_per_image():
    strategy, spy = make(sampling="sample"), Spy(smooth_weights())
    strategy.step(spy, search_batch(0))
    gate = next(iter(spy.calls[0][2].values()))
    assert gate.index.shape == (12,)
    assert gate.weights.shape == (12, 4)


def test_presets_are_the_papers_and_the_public_scripts_settings():
    paper, public = Gdas.presets["paper"], Gdas.presets["public"]
    assert paper["strategy"] == {
        "temperature_end": 1.0,
        "sampling": "sample",
        "keep_none": True,
        "learning_rate": 3e-4,
    }
    assert public["strategy"]["temperature_end"] == 0.1
    assert public["strategy"]["learning_rate"] == 3e-4
    assert public["weights"] == {"weight_decay": 5e-4, "nesterov": True}
    for preset in (paper, public):
        make(**preset["strategy"])


def test_all_broken_rules_are_reported_together():
    with pytest.raises(SettingError, match=r"temperature_end must lie in \(0, 10.0\], got -1"):
        make(temperature_end=-1)
    with pytest.raises(SettingError, match="temperature_start must be above 0, got 0"):
        make(temperature_start=0)
    with pytest.raises(SettingError, match="needs sampling = 'batch'"):
        make(gradient="nb201_code", sampling="sample")
