"""Verdicts: coverage of the intervals, level of the test, the correction by hand, and the sentences."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from archloom.comparisons.statistics import (
    SEEDS_FOR_BOOTSTRAP,
    Pair,
    compare_pairs,
    correct_by_holm,
    estimate_interval,
    permutation_p,
    smallest_p,
    superiority,
)
from archloom.core.metrics import PERPLEXITY

MANY = SEEDS_FOR_BOOTSTRAP


@pytest.mark.parametrize(
    ("own", "other", "least"), [(3, 3, 0.92), (5, 5, 0.92), (10, 10, 0.92), (5, 200, 0.92), (MANY, MANY + 10, 0.91)]
)
def test_interval_covers_the_true_difference_of_normal_results(own: int, other: int, least: float) -> None:
    """Of 1,000 intervals of 95 %; the bootstrap covered 78 % at 3 seeds and 86 % at 5, which is why it waits."""
    rng = np.random.default_rng(0)
    low, high = estimate_interval(rng.normal(0.7, 1.0, (1000, own)), rng.normal(0.0, 2.0, (1000, other)), resamples=199)
    assert least <= np.mean((low < 0.7) & (high > 0.7)) <= 0.98


@pytest.mark.parametrize(("own", "other", "least"), [(5, 5, 0.92), (5, 200, 0.86), (MANY, MANY, 0.9)])
def test_interval_covers_the_true_difference_of_skewed_results(own: int, other: int, least: float) -> None:
    """Skewed as accuracies below a ceiling are; few seeds against many are the hardest case."""
    rng = np.random.default_rng(0)
    ours, theirs = 0.7 - rng.exponential(1.0, (1000, own)), -rng.exponential(2.0, (1000, other))
    low, high = estimate_interval(ours, theirs, resamples=199)
    true = (0.7 - 1.0) - (-2.0)
    assert least <= np.mean((low < true) & (true < high)) <= 0.98


@pytest.mark.parametrize("seeds", [8, MANY])
def test_interval_has_a_sign_and_a_scale(seeds: int) -> None:
    rng = np.random.default_rng(1)
    own, other = 95 + rng.normal(size=seeds), 92 + rng.normal(size=seeds)
    low, high = estimate_interval(own, other)
    assert 0 < low < np.mean(own) - np.mean(other) < high < 6
    assert estimate_interval(other, own) == pytest.approx(np.array([-high, -low]), abs=0.05)
    assert estimate_interval(10 * own, 10 * other) == pytest.approx(np.array([10 * low, 10 * high]))


def test_welch_interval_agrees_with_a_calculation_by_hand() -> None:
    """Variances 1 and 4 of three seeds: standard error sqrt(5 / 3), 2.94 degrees of freedom, t = 3.214."""
    low, high = estimate_interval([5.0, 6.0, 7.0], [0.0, 2.0, 4.0])
    assert (low + high) / 2 == pytest.approx(4.0)
    assert (high - low) / 2 == pytest.approx(3.214 * np.sqrt(5 / 3), rel=0.01)


def test_interval_exists_where_one_side_does_not_vary() -> None:
    low, high = estimate_interval([1.0, 1.0, 1.0], [0.0, 0.5, 0.0])
    assert np.isfinite([low, high]).all() and low < 5 / 6 < high


def test_the_permutation_test_keeps_its_level() -> None:
    rng = np.random.default_rng(2)
    values = [permutation_p(*rng.exponential(1.0, (2, 8)), resamples=199) for _ in range(400)]
    assert 0.02 <= np.mean(np.array(values) <= 0.05) <= 0.08
    assert 0.4 <= np.mean(values) <= 0.62


def test_few_seeds_are_permuted_in_every_way() -> None:
    assert permutation_p([4, 5, 6], [1, 2, 3]) == pytest.approx(2 / 20)
    assert permutation_p([1, 2, 3], [4, 5, 6]) == pytest.approx(2 / 20)
    assert permutation_p([1, 5, 6], [2, 3, 4]) == pytest.approx(2 * 7 / 20)  # 7 of the 20 triples add up to 12 or more
    assert smallest_p(3, 3) == pytest.approx(0.1)
    assert smallest_p(5, 200) == pytest.approx(2 / 10000)


def test_holm_correction_by_hand() -> None:
    corrected = correct_by_holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert corrected == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert correct_by_holm({"a": 0.6, "b": 0.5}) == pytest.approx({"a": 1.0, "b": 1.0})
    assert correct_by_holm({"a": 0.2}) == {"a": 0.2}
    assert correct_by_holm({}) == {}


def test_superiority_counts_ties_as_half() -> None:
    assert superiority([3, 2], [1, 2]) == pytest.approx((1 + 1 + 1 + 0.5) / 4)
    assert superiority([1], [2]) == 0.0


SPREAD = [0.0, 0.1, 0.2, 0.3, 0.4]
WIDE = [*SPREAD, 0.05, 0.15, 0.25]


def sentences(**pairs: Pair) -> dict[str, str]:
    return {name: verdict.sentence for name, verdict in compare_pairs(pairs, against="random search").items()}


def test_sentences_for_better_worse_and_no_difference() -> None:
    better = Pair([93.5 + x for x in SPREAD], [93 + x for x in WIDE], "at matched cost")
    worse = Pair([92.5 + x for x in SPREAD], [93 + x for x in WIDE])
    neither = Pair([93 + x for x in WIDE], [93 + x for x in WIDE])
    found = compare_pairs({"a": better, "b": worse, "c": neither}, against="random search")
    mean = np.mean(better.own) - np.mean(better.other)
    low, high = estimate_interval(better.own, better.other)
    assert found["a"].sentence == (
        f"better than random search by {mean:.2f} points, 95 % CI {low:.2f} to {high:.2f}, "
        f"p = {found['a'].corrected:.3f} (corrected for 3 comparisons), 5 seeds against 8; at matched cost"
    )
    assert found["a"].difference == pytest.approx(mean) and mean > 0 and 0 < low < mean < high
    assert found["a"].p is not None and found["a"].corrected == pytest.approx(3 * found["a"].p)
    low, high = estimate_interval(worse.own, worse.other)
    assert found["b"].sentence.startswith(
        f"worse than random search by {np.mean(worse.other) - np.mean(worse.own):.2f} points, "
        f"95 % CI {-high:.2f} to {-low:.2f}, p = "
    )
    assert found["c"].sentence.startswith("no significant difference from random search: +0.00 points, 95 % CI -0.")
    assert found["c"].superiority == pytest.approx(0.5)


def test_a_lower_perplexity_is_better() -> None:
    lower = Pair([80 + 10 * x for x in SPREAD], [90 + 10 * x for x in WIDE], metric=PERPLEXITY)
    higher = Pair(lower.other, lower.own, metric=PERPLEXITY)
    untested = Pair([80.0], [90.0], metric=PERPLEXITY)
    found = compare_pairs({"a": lower, "b": higher, "c": untested}, against="random search")
    low, high = estimate_interval(lower.own, lower.other)
    assert low < high < 0
    assert found["a"].sentence.startswith(
        f"better than random search by {np.mean(lower.other) - np.mean(lower.own):.2f} perplexity, "
        f"95 % CI {-high:.2f} to {-low:.2f}, p = "
    )
    assert found["b"].sentence.startswith("worse than random search by ")
    assert found["a"].superiority == 1.0 and found["b"].superiority == 0.0 and found["c"].superiority == 1.0
    assert found["a"].difference == pytest.approx(np.mean(lower.own) - np.mean(lower.other))
    assert found["c"].sentence.startswith("not tested against random search: -10.00 perplexity, ")


def test_one_comparison_needs_no_correction() -> None:
    assert "corrected" not in sentences(a=Pair([1 + x for x in SPREAD], WIDE))["a"]


def test_sentence_says_when_there_are_too_few_seeds() -> None:
    """Three seeds against three: even the clearest outcome has no small p."""
    clear = Pair([94.0, 94.1, 94.2], [90.0, 90.1, 90.2])
    said = sentences(a=clear)["a"]
    assert said.startswith("no significant difference from random search: +4.00 points")
    assert said.endswith("too few seeds to show a difference: the smallest possible p is 0.1 before correction")
    four = Pair([94.0, 94.1, 94.2, 94.3], [90.0, 90.1, 90.2, 90.3])  # 2/70 alone is enough, thrice that is not
    assert "better than" in sentences(a=four)["a"]
    assert "too few seeds" in sentences(a=four, b=four, c=four)["a"]


def test_sentence_gives_the_reason_where_no_test_is_possible() -> None:
    said = sentences(
        one=Pair([94.0], [93.0, 93.5]),
        flat=Pair([94.0, 94.0], [93.0, 93.0]),
        none=Pair([], [93.0]),
        alone=Pair([93.0, 94.0], []),
    )
    assert said["one"] == (
        "not tested against random search: +0.75 points, 1 seed against 2; a test needs two seeds or more on each side"
    )
    assert said["flat"].endswith("results do not vary on either side, so there is nothing to test")
    assert said["none"] == "not compared with random search: it has no result"
    assert said["alone"] == "not compared with random search: random search has no result"


def test_untested_entries_do_not_count_as_comparisons() -> None:
    assert "corrected" not in sentences(a=Pair([1 + x for x in SPREAD], WIDE), b=Pair([1.0], WIDE))["a"]


def test_verdicts_are_reproducible() -> None:
    pairs = {"a": Pair([1 + x for x in SPREAD], WIDE)}
    assert compare_pairs(pairs, against="b") == compare_pairs(pairs, against="b")


def test_module_imports_neither_torch_nor_the_statistics_of_scipy() -> None:
    code = "import sys, archloom.comparisons.statistics; assert not {'torch', 'scipy.stats'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
