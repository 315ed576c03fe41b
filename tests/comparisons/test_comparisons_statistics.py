"""The verdict: intervals that cover, a test that keeps its level, a correction by hand, and what is said of them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from archloom.comparisons.statistics import Pair, holm, interval, judge, permutation_p, smallest_p, superiority


@pytest.mark.parametrize(("own", "other", "least", "most"), [(30, 40, 0.92, 0.98), (5, 200, 0.75, 0.95)])
def test_the_interval_covers_the_true_difference(own: int, other: int, least: float, most: float) -> None:
    """Skewed results, as accuracies below a ceiling are. Of five seeds no resampling can make twenty."""
    rng = np.random.default_rng(0)
    ours = 0.7 - rng.exponential(1.0, (300, own))
    theirs = -rng.exponential(2.0, (300, other))
    low, high = interval(ours, theirs, resamples=499)
    true = (0.7 - 1.0) - (-2.0)
    assert least <= np.mean((low < true) & (true < high)) <= most
    assert np.mean(low) < true < np.mean(high)


def test_the_interval_has_a_sign_and_a_scale() -> None:
    rng = np.random.default_rng(1)
    own, other = 93 + rng.normal(size=40), 92 + rng.normal(size=40)
    low, high = interval(own, other)
    assert 0 < low < np.mean(own) - np.mean(other) < high < 2
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt((own.var() + other.var()) / 40), rel=0.1)
    assert interval(other, own) == pytest.approx(np.array([-high, -low]), abs=0.05)
    assert interval(10 * own, 10 * other) == pytest.approx(np.array([10 * low, 10 * high]))


def test_where_bias_cannot_be_corrected_percentiles_serve() -> None:
    assert interval([1.0, 1.0, 1.0], [0.0, 0.0, 0.0]) == pytest.approx(np.array([1.0, 1.0]))
    low, high = interval([1.0, 1.0, 1.0], [0.0, 0.5, 0.0])
    assert 0.5 <= low <= high <= 1.0


def test_the_permutation_test_keeps_its_level() -> None:
    rng = np.random.default_rng(2)
    values = [permutation_p(*rng.exponential(1.0, (2, 8)), resamples=199) for _ in range(400)]
    assert 0.02 <= np.mean(np.array(values) <= 0.05) <= 0.08
    assert 0.4 <= np.mean(values) <= 0.62


def test_few_seeds_are_exchanged_in_every_way() -> None:
    assert permutation_p([4, 5, 6], [1, 2, 3]) == pytest.approx(2 / 20)
    assert permutation_p([1, 2, 3], [4, 5, 6]) == pytest.approx(2 / 20)
    assert permutation_p([1, 5, 6], [2, 3, 4]) == pytest.approx(2 * 7 / 20)  # 7 of the 20 triples add up to 12 or more
    assert smallest_p(3, 3) == pytest.approx(0.1)
    assert smallest_p(5, 200) == pytest.approx(2 / 10000)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.5]) == pytest.approx([1.0, 1.0])
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


def test_superiority_counts_ties_half() -> None:
    assert superiority([3, 2], [1, 2]) == pytest.approx((1 + 1 + 1 + 0.5) / 4)
    assert superiority([1], [2]) == 0.0


SPREAD = [0.0, 0.1, 0.2, 0.3, 0.4]
WIDE = [*SPREAD, 0.05, 0.15, 0.25]


def sentences(**pairs: Pair) -> dict[str, str]:
    return {name: verdict.sentence for name, verdict in judge(pairs, against="random search").items()}


def test_better_worse_and_neither_in_words() -> None:
    better = Pair([93.5 + x for x in SPREAD], [93 + x for x in WIDE], "at matched cost")
    worse = Pair([92.5 + x for x in SPREAD], [93 + x for x in WIDE])
    neither = Pair([93 + x for x in WIDE], [93 + x for x in WIDE])
    found = judge({"a": better, "b": worse, "c": neither}, against="random search")
    mean = np.mean(better.own) - np.mean(better.other)
    low, high = interval(better.own, better.other)
    assert found["a"].sentence == (
        f"better than random search by {mean:.2f} points, 95 % CI {low:.2f} to {high:.2f}, "
        f"p = {found['a'].corrected:.3f} (corrected for 3 comparisons), 5 seeds against 8; at matched cost"
    )
    assert found["a"].difference == pytest.approx(mean) and mean > 0 and 0 < low < mean < high
    assert found["a"].p is not None and found["a"].corrected == pytest.approx(3 * found["a"].p)
    low, high = interval(worse.own, worse.other)
    assert found["b"].sentence.startswith(
        f"worse than random search by {np.mean(worse.other) - np.mean(worse.own):.2f} points, "
        f"95 % CI {-high:.2f} to {-low:.2f}, p = "
    )
    assert found["c"].sentence.startswith("no difference shown from random search: +0.00 points, 95 % CI -0.")
    assert found["c"].superiority == pytest.approx(0.5)


def test_one_comparison_needs_no_correction() -> None:
    assert "corrected" not in sentences(a=Pair([1 + x for x in SPREAD], WIDE))["a"]


def test_too_few_seeds_are_told() -> None:
    """Three against three: not even the clearest outcome has a small p."""
    clear = Pair([94.0, 94.1, 94.2], [90.0, 90.1, 90.2])
    said = sentences(a=clear)["a"]
    assert said.startswith("no difference shown from random search: +4.00 points")
    assert said.endswith("so few seeds cannot show a difference: the smallest possible p is 0.1 before correction")
    four = Pair([94.0, 94.1, 94.2, 94.3], [90.0, 90.1, 90.2, 90.3])  # 2/70 alone is enough, thrice that is not
    assert "better than" in sentences(a=four)["a"]
    assert "cannot show" in sentences(a=four, b=four, c=four)["a"]


def test_what_cannot_be_tested_says_why() -> None:
    said = sentences(
        one=Pair([94.0], [93.0, 93.5]),
        flat=Pair([94.0, 94.0], [93.0, 93.0]),
        none=Pair([], [93.0]),
        alone=Pair([93.0, 94.0], []),
    )
    assert said["one"] == (
        "not tested against random search: +0.75 points, 1 seed against 2; "
        "one seed cannot tell a difference from chance"
    )
    assert said["flat"].endswith("no spread on either side, so that there is nothing to test")
    assert said["none"] == "not compared with random search: there is no result of its own"
    assert said["alone"] == "not compared with random search: there is no result of random search"


def test_untested_entries_do_not_count_as_comparisons() -> None:
    assert "corrected" not in sentences(a=Pair([1 + x for x in SPREAD], WIDE), b=Pair([1.0], WIDE))["a"]


def test_the_same_figures_every_time() -> None:
    pairs = {"a": Pair([1 + x for x in SPREAD], WIDE)}
    assert judge(pairs, against="b") == judge(pairs, against="b")


def test_it_needs_no_torch() -> None:
    code = (
        "import sys, archloom.comparisons.statistics; assert 'torch' not in sys.modules and 'scipy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
