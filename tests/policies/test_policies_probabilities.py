"""Architectures sampled by probability, their log-probabilities, and indecision."""

from __future__ import annotations

import math
import random

import pytest

from archloom.policies.probabilities import describe_indecision, log_probability, sample_architecture
from archloom.spaces import SPACES, Nb201

SPACE = Nb201(nodes=3, operations=("none", "skip_connect", "nor_conv_3x3"))


def rows(*row: float):
    return {decision.name: list(row) for decision in SPACE.decisions}


def test_a_log_probability_is_the_sum_over_decisions_with_a_floor():
    architecture = SPACE.parse("|none~0|+|skip_connect~0|nor_conv_3x3~1|")
    assert log_probability(SPACE, rows(0.5, 0.3, 0.2), architecture) == pytest.approx(math.log(0.5 * 0.3 * 0.2))
    assert log_probability(SPACE, rows(0.5, 0.5, 0.0), architecture) == pytest.approx(math.log(0.25 * 1e-6))


def test_none_has_no_probability_of_its_own_where_it_may_not_win():
    architecture = SPACE.parse("|none~0|+|skip_connect~0|nor_conv_3x3~1|")
    found = log_probability(SPACE, rows(0.5, 0.3, 0.2), architecture, keep_none=False)
    assert found == pytest.approx(math.log(0.3 * 0.2))


def test_none_and_excluded_options_are_not_sampled():
    rng = random.Random(0)
    found = [sample_architecture(SPACE, rows(0.98, 0.01, 0.01), rng, keep_none=False) for _ in range(50)]
    assert {option for one in found for option in one.values()} == {"skip_connect", "nor_conv_3x3"}
    found = [sample_architecture(SPACE, rows(0.5, 0.0, 0.5), rng) for _ in range(50)]
    assert {option for one in found for option in one.values()} == {"none", "nor_conv_3x3"}


@pytest.mark.parametrize("name", ["darts", "nb201", "proxylessnas_32", "nats_size"])
def test_samples_are_architectures_of_the_space_with_a_finite_log_probability(name):
    entry, rng = SPACES[name], random.Random(0)
    space = entry.load()(**entry.settings)
    uniform = {d.name: [1 / len(d.options)] * len(d.options) for d in space.decisions}
    found = [sample_architecture(space, uniform, rng) for _ in range(20)]
    assert all(space.check(one) == one for one in found)
    assert len(set(found)) > 10
    assert all(-math.inf < log_probability(space, uniform, one) < 0 for one in found)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ([0.2, 0.2, 0.2, 0.18, 0.22], "the largest probability is 0.22 of a uniform 0.20: this is a random choice"),
        ([0.19, 0.19, 0.19, 0.17, 0.26], None),
        ([0.0, 0.0, 0.0, 0.45, 0.55], "the largest probability is 0.55 of a uniform 0.50: this is a random choice"),
        ([0.0, 0.0, 0.0, 0.3, 0.7], None),
    ],
)
def test_indecision_is_relative_to_the_number_of_options_that_take_part(row, sentence):
    assert describe_indecision({"a": row}) == sentence


def test_the_median_decision_counts_and_fixed_ones_do_not():
    flat, sharp = [0.5, 0.5], [0.1, 0.9]
    assert describe_indecision({"a": flat, "b": sharp, "c": sharp}) is None
    assert describe_indecision({"a": flat, "b": flat, "c": sharp}) is not None
    assert describe_indecision({"a": [1.0], "b": [1.0], "c": flat}) is not None
    assert describe_indecision({"a": [1.0]}) is None
