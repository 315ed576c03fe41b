"""The surrogate predicts trainings that were not run, from those that were and from what the search learned."""

from __future__ import annotations

import random

import numpy as np
import pytest

from archloom.searches.race_surrogate import Observation, Surrogate
from archloom.spaces import Nb201

SPACE = Nb201(nodes=3)
WORTH = {"none": -2.0, "skip_connect": 0.0, "nor_conv_1x1": 1.0, "nor_conv_3x3": 2.0, "avg_pool_3x3": -1.0}
WEIGHTS = {"0->1": 1.0, "0->2": 0.3, "1->2": 0.6}


def score(architecture) -> float:
    return sum(WEIGHTS[name] * WORTH[option] for name, option in architecture.items())


def observe(count: int, *, noise: float = 0.0, covariate=lambda one: 0.0, seed: int = 0) -> list[Observation]:
    rng = random.Random(seed)
    architectures = rng.sample(list(SPACE.enumerate()), count)
    return [Observation(one, (covariate(one),), score(one) + rng.gauss(0, noise)) for one in architectures]


def correlate(surrogate: Surrogate, covariate=lambda one: 0.0) -> float:
    everything = list(SPACE.enumerate())
    mean = surrogate.predict(everything, [(covariate(one),) for one in everything]).mean
    return float(np.corrcoef(mean, [score(one) for one in everything])[0, 1])


def test_additive_scores_are_learned_from_a_quarter_of_the_space() -> None:
    assert correlate(Surrogate(SPACE, observe(30))) > 0.95


def test_a_covariate_that_knows_helps_and_one_that_does_not_is_ignored() -> None:
    few = observe(4, covariate=score)
    assert correlate(Surrogate(SPACE, few), score) > 0.9
    assert correlate(Surrogate(SPACE, few), score) > correlate(Surrogate(SPACE, observe(4)))
    rng = random.Random(1)
    luck = {one: rng.gauss(0, 1) for one in SPACE.enumerate()}
    misled = Surrogate(SPACE, observe(30, covariate=luck.__getitem__))
    assert correlate(misled, luck.__getitem__) > 0.9


def test_a_misleading_covariate_is_turned_round() -> None:
    assert correlate(Surrogate(SPACE, observe(12, covariate=lambda one: -score(one))), lambda one: -score(one)) > 0.9


def test_predictions_are_in_the_units_of_the_scores() -> None:
    observations = observe(60)
    prediction = Surrogate(SPACE, observations).predict([one.architecture for one in observations], [(0.0,)] * 60)
    assert prediction.mean == pytest.approx([one.score for one in observations], abs=0.6)
    shifted = [Observation(one.architecture, one.covariates, 10 * one.score + 100) for one in observations]
    moved = Surrogate(SPACE, shifted).predict([one.architecture for one in observations], [(0.0,)] * 60)
    assert moved.mean == pytest.approx(10 * prediction.mean + 100)
    assert moved.covariance == pytest.approx(100 * prediction.covariance)


def test_noise_is_recognised_and_what_was_not_seen_is_less_certain() -> None:
    quiet, loud = Surrogate(SPACE, observe(60)), Surrogate(SPACE, observe(60, noise=1.5))
    assert loud.noise > 2 * quiet.noise
    observations = observe(10)
    seen = [one.architecture for one in observations]
    unseen = [one for one in SPACE.enumerate() if one not in seen]
    surrogate = Surrogate(SPACE, observations)
    variances = [np.diag(surrogate.predict(some, [(0.0,)] * len(some)).covariance).mean() for some in (seen, unseen)]
    assert variances[0] < variances[1]


def test_expected_improvement_is_the_mean_of_what_exceeds_the_best() -> None:
    some = list(SPACE.enumerate())[:6]
    surrogate = Surrogate(SPACE, observe(10))
    prediction = surrogate.predict(some, [(0.0,)] * 6)
    spread = np.sqrt(np.diag(prediction.covariance))
    draws = prediction.mean + spread * np.random.default_rng(0).standard_normal((200_000, 6))
    for best in (surrogate.best, prediction.mean.mean()):
        expected = np.clip(draws - best, 0.0, None).mean(axis=0)
        assert prediction.expect_improvement(best) == pytest.approx(expected, abs=0.02 * spread.max())


def test_the_best_so_far_is_without_noise() -> None:
    observations = observe(60, noise=1.5)
    predicted = Surrogate(SPACE, observations).predict([one.architecture for one in observations], [(0.0,)] * 60)
    assert Surrogate(SPACE, observations).best == pytest.approx(predicted.mean.max())
    assert Surrogate(SPACE, observations).best < max(one.score for one in observations)


def test_one_training_and_equal_scores_are_enough_to_predict() -> None:
    assert np.isfinite(Surrogate(SPACE, observe(1)).predict(list(SPACE.enumerate()), [(0.0,)] * 125).mean).all()
