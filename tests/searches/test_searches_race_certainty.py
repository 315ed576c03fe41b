"""How sure a race is of its winner: against a calculation by hand, and against races whose truth is known."""

from __future__ import annotations

import random

import numpy as np
import pytest
from scipy.stats import norm

from archloom.searches.race_certainty import FEWEST, Certainty, measure_certainty
from archloom.searches.race_proposals import Knowledge
from archloom.searches.race_surrogate import Prediction
from archloom.searches.records import FinalistRecord
from archloom.spaces import Architecture, Nb201

SPACE = Nb201(nodes=3)
EVERYTHING = list(SPACE.enumerate())
KNOWLEDGE = Knowledge(
    space=SPACE, derived=None, references={}, sample=SPACE.sample, log_probability=lambda architecture: 0.0
)


def record(architecture: Architecture, loss: float | None, *, steps: int = 10, repeat: int = 0) -> FinalistRecord:
    return FinalistRecord("", architecture, steps, loss, 0.5, 100, repeat=repeat)


# --- probabilities to be the best


def test_two_architectures_have_the_probability_of_the_normal_law() -> None:
    covariance = np.array([[1.0, 0.6], [0.6, 2.0]])
    found = Prediction(np.array([0.5, 0.0]), covariance).probabilities_of_best()
    wanted = norm.cdf(0.5 / (1.0 + 2.0 - 2 * 0.6) ** 0.5)
    assert found == pytest.approx([wanted, 1 - wanted], abs=0.012)


def test_many_architectures_win_as_often_as_in_a_simulation() -> None:
    rng = np.random.default_rng(5)
    root, mean = rng.normal(size=(6, 6)), rng.normal(size=6)
    simulated = rng.multivariate_normal(mean, root @ root.T, size=40_000).argmax(axis=1)
    found = Prediction(mean, root @ root.T).probabilities_of_best()
    assert found == pytest.approx(np.bincount(simulated, minlength=6) / 40_000, abs=0.015)
    assert found.sum() == pytest.approx(1.0)


def test_architectures_that_cannot_differ_share_nothing_twice() -> None:
    """Their covariance is singular: the first of equals wins."""
    found = Prediction(np.array([1.0, 1.0, -50.0]), np.ones((3, 3))).probabilities_of_best()
    assert found.tolist()[2] == 0.0 and found.sum() == pytest.approx(1.0)


# --- races


def simulate(seed: int, *, noise: float) -> tuple[float, bool]:
    """Return how sure a race of 16 architectures and a second round of 4 is, and whether its winner is the best."""
    rng = np.random.default_rng(seed)
    worth = {(one.name, option): float(rng.normal()) for one in SPACE.decisions for option in one.options}
    truth = {one: sum(worth[pair] for pair in one.items()) / 3**0.5 for one in EVERYTHING}
    trained = random.Random(seed).sample(EVERYTHING, 16)
    first = [record(one, 5.0 - truth[one] + noise * rng.normal()) for one in trained]
    kept = sorted(first, key=lambda one: one.valid_loss or 0.0)[:4]
    # a longer training has another level
    later = [record(one.architecture, 3.0 - truth[one.architecture] + noise * rng.normal(), steps=30) for one in kept]
    winner = min(later, key=lambda one: one.valid_loss or 0.0).architecture
    found = measure_certainty(KNOWLEDGE, [*later, *first], winner, size=0.0)
    assert found is not None
    return found.probability, winner == max(trained, key=truth.__getitem__)


@pytest.mark.parametrize(("noise", "least", "most"), [(0.4, 0.5, 0.75), (1.0, 0.25, 0.55)])
def test_stated_probabilities_are_the_shares_of_races_that_found_the_best(
    noise: float, least: float, most: float
) -> None:
    pairs = [simulate(seed, noise=noise) for seed in range(150)]
    said, right = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    assert least < right.mean() < most  # neither hopeless nor certain
    assert said.mean() == pytest.approx(right.mean(), abs=0.1)  # 2.5 standard errors
    sure = said > np.median(said)
    assert right[sure].mean() > right[~sure].mean() + 0.1  # and surer races are right more often


def test_too_few_trainings_say_nothing_and_a_diverged_one_does_no_harm() -> None:
    few = [record(one, float(number)) for number, one in enumerate(EVERYTHING[: FEWEST - 1])]
    assert measure_certainty(KNOWLEDGE, few, few[0].architecture, size=0.0) is None
    more = [*few, record(EVERYTHING[50], None)]
    found = measure_certainty(KNOWLEDGE, more, more[0].architecture, size=0.0)
    assert found is not None and 0 <= found.probability <= 1
    assert (found.contestants, found.trainings) == (FEWEST, FEWEST)
    assert measure_certainty(KNOWLEDGE, more, more[0].architecture, size=0.0) == found


def test_the_level_of_longer_trainings_does_not_count() -> None:
    rng = np.random.default_rng(3)
    first = [record(one, float(rng.normal())) for one in EVERYTHING[:12]]

    def probability(level: float) -> float:
        numbers = np.random.default_rng(4).normal(size=4)
        later = [
            record(one.architecture, level + float(number), steps=30)
            for one, number in zip(first[:4], numbers, strict=True)
        ]
        found = measure_certainty(KNOWLEDGE, [*later, *first], EVERYTHING[0], size=0.0)
        assert found is not None
        return found.probability

    assert probability(-3.0) == pytest.approx(probability(8.0), abs=1e-3)


@pytest.mark.parametrize(("probability", "text"), [(0.624, "62 %"), (0.002, "below 1 %"), (0.9999, "above 99 %")])
def test_the_sentence_says_of_what_it_is_the_probability(probability: float, text: str) -> None:
    sentence = Certainty(probability=probability, contestants=24, trainings=39).sentence
    assert sentence == (
        f"The probability that the result has the best score of these 24 is {text} (by the surrogate; the score is "
        "loss and size after short trainings, without their noise)."
    )
