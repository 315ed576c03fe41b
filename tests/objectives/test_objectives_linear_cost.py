"""A linear cost model: exact on costs that are sums over groups of decisions, and fitted to those that nearly are."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass

import pytest
import torch

from archloom.core.errors import SettingError
from archloom.objectives.linear_cost import DecomposedCost, LinearCost, every_feature, fit_linear_cost
from archloom.spaces import Architecture, Decision, Nb201
from archloom.spaces.base import Feature


@dataclass(frozen=True, kw_only=True)
class Layers(Nb201):
    """Three layers of two widths and a kernel each; the one in the middle may be left out."""

    def full_decisions(self) -> tuple[Decision, ...]:
        widths = [Decision(f"width{number}", ("8", "16", "24")) for number in range(3)]
        kernels = [Decision(f"kernel{number}", ("3", "5")) for number in range(2)]
        return (*widths, *kernels, Decision("middle", ("zero", "there")))

    def cost_features(self, architecture: Architecture) -> tuple[Feature, ...]:
        groups = [("width1", "middle"), ("width0", "width1", "kernel0"), ("width1", "width2", "kernel1")]
        kept = [group for group in groups if "middle" not in group or architecture["middle"] != "zero"]
        return tuple(tuple((name, architecture[name]) for name in group) for group in kept)


SPACE = Layers()
ALL = [
    Architecture(dict(zip([d.name for d in SPACE.decisions], options, strict=True)))
    for options in itertools.product(*(d.options for d in SPACE.decisions))
]


def cost(architecture) -> float:
    """Products of neighbouring widths, which no sum over single decisions can tell."""
    a, b, c = (float(architecture[f"width{number}"]) for number in range(3))
    first, last = (float(architecture[f"kernel{number}"]) ** 2 for number in range(2))
    middle = 7 * b if architecture["middle"] == "there" else 0.0
    return 100 + a * b * first + middle + b * c * last


def additive(architecture) -> float:
    """A sum over single decisions, nearly what a small network takes."""
    widths = sum(float(architecture[f"width{number}"]) for number in range(3))
    kernels = sum(float(architecture[f"kernel{number}"]) ** 2 for number in range(2))
    return 10 + 0.2 * widths + 0.1 * kernels + (3 if architecture["middle"] == "there" else 0)


def test_every_feature_is_one_that_some_architecture_has():
    seen = {feature for one in ALL for feature in SPACE.cost_features(one)}
    assert set(every_feature(SPACE)) == seen
    assert len(list(every_feature(SPACE))) == len(seen) == 18 + 3 + 18


def test_a_sum_over_groups_is_exact_after_one_measurement_per_feature():
    measured = []
    model = DecomposedCost(SPACE, lambda one: (measured.append(one), cost(one))[1])
    assert all(model.measure(one) == pytest.approx(cost(one), rel=1e-12) for one in ALL)
    assert len(measured) <= 1 + 39
    assert model.is_exact(checks=20)
    whole = model.to_linear_cost()
    assert all(whole.measure(one) == pytest.approx(cost(one), rel=1e-12) for one in ALL)


def test_a_feature_is_looked_at_when_it_is_asked_for():
    measured = []
    model = DecomposedCost(SPACE, lambda one: (measured.append(one), cost(one))[1])
    model.measure(ALL[0])
    assert len(measured) < 8


def test_what_is_no_sum_is_noticed():
    joint = DecomposedCost(SPACE, lambda one: cost(one) * (2 if one["kernel0"] == one["kernel1"] else 1))
    assert not joint.is_exact(checks=20)


def test_the_expected_cost_is_the_mean_over_all_architectures_and_has_its_gradient():
    generator = torch.Generator().manual_seed(0)
    logits = {
        d.name: torch.randn(len(d.options), dtype=torch.float64, generator=generator).requires_grad_()
        for d in SPACE.decisions
    }
    probabilities = {name: row.softmax(dim=0) for name, row in logits.items()}
    mean = sum(
        cost(one) * math.prod(probabilities[d.name][d.index(one[d.name])] for d in SPACE.decisions) for one in ALL
    )
    expected = DecomposedCost(SPACE, cost).to_linear_cost().expected_cost(probabilities)
    assert expected.item() == pytest.approx(mean.item(), rel=1e-12)
    rows = list(logits.values())
    for own, wanted in zip(
        torch.autograd.grad(expected, rows, retain_graph=True), torch.autograd.grad(mean, rows), strict=True
    ):
        assert wanted.norm() > 1
        assert (own - wanted).norm() < 1e-10 * wanted.norm()


def test_a_fit_tells_networks_it_has_not_seen():
    rng = random.Random(0)
    samples = [SPACE.sample(rng) for _ in range(120)]
    good = fit_linear_cost(SPACE, samples, [cost(one) for one in samples])
    assert good.r2 > 0.999 and good.error < 0.01 and good.networks == 120 and good.uncovered == 0
    noise = [cost(one) * rng.uniform(0.5, 1.5) for one in samples]
    assert fit_linear_cost(SPACE, samples, noise).r2 < 0.98
    shuffled = [cost(one) for one in samples]
    rng.shuffle(shuffled)
    assert fit_linear_cost(SPACE, samples, shuffled).r2 < 0.5


def test_unseen_features_are_predicted_from_those_that_share_options():
    rng = random.Random(0)
    samples = [one for one in (SPACE.sample(rng) for _ in range(400)) if (one["width0"], one["kernel0"]) != ("24", "5")]
    fit = fit_linear_cost(SPACE, samples, [additive(one) for one in samples])
    assert fit.uncovered == 3
    unseen = [one for one in ALL if (one["width0"], one["kernel0"]) == ("24", "5")]
    assert all(fit.model.measure(one) == pytest.approx(additive(one), rel=0.05) for one in unseen)


def test_shared_options_help_with_few_noisy_networks():
    rng = random.Random(0)
    samples = [SPACE.sample(rng) for _ in range(50)]  # for 39 features
    fit = fit_linear_cost(SPACE, samples, [additive(one) * rng.gauss(1, 0.03) for one in samples])
    misses = [abs(fit.model.measure(one) / additive(one) - 1) for one in ALL]
    assert sum(misses) / len(misses) < 0.03  # with a number for each feature by itself it is 0.054


def test_a_feature_of_another_space_is_named():
    model = LinearCost(SPACE, 0.0, {})
    with pytest.raises(SettingError, match="has no weight for width0 8 with width1 8 with kernel0 3"):
        model.measure(ALL[0])
