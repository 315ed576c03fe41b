"""The random baseline, and what a table says of a result."""

from __future__ import annotations

import random
from dataclasses import replace

from archloom.benchmarks import TableEntry
from archloom.searches.random_baseline import compare_with_random, describe_entry, join_sentences
from archloom.spaces import Architecture, Nb201

SPACE = Nb201(nodes=3)
ENTRY = TableEntry("cifar10", 93.66, 91.0, rank=1204, count=15625, regret=0.71)


def share_of_convolutions(architecture: Architecture) -> float:
    return sum("conv" in option for option in architecture.values()) / 3


def test_sentence_counts_the_baseline_architectures_that_are_beaten() -> None:
    best = SPACE.parse("|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_1x1~1|")
    found = compare_with_random(SPACE, best, share_of_convolutions, samples=40, rng=random.Random(0))
    rng = random.Random(0)
    sampled = [share_of_convolutions(SPACE.sample(rng)) for _ in range(40)]
    assert found.random_baseline == tuple(sorted(sampled))
    assert found.shared_score == 1.0
    beaten = sum(value < 1.0 for value in sampled)
    assert f"higher than {beaten} of 40 architectures sampled uniformly (median 33.3 %)" in found.sentence


def test_architecture_no_better_than_the_baseline_beats_none() -> None:
    worst = SPACE.parse("|none~0|+|none~0|none~1|")
    found = compare_with_random(SPACE, worst, share_of_convolutions, samples=10, rng=random.Random(0))
    assert "higher than 0 of 10" in found.sentence


def test_table_gives_the_exact_share() -> None:
    assert describe_entry(ENTRY) == (
        "In the cifar10 table it has 93.66 % test accuracy, rank 1,204 of 15,625, 0.71 points below the best. "
        "It beats 92.3 % of all architectures in the table."
    )
    assert "In the cifar10 table (instead of mine) it has" in describe_entry(replace(ENTRY, instead_of="mine"))
    assert describe_entry(None) == ""


def test_no_samples_give_no_sentence() -> None:
    cell = SPACE.parse("|none~0|+|none~0|none~1|")
    found = compare_with_random(SPACE, cell, share_of_convolutions, samples=0, rng=random.Random(0))
    assert found.sentence == ""
    assert join_sentences((describe_entry(None), found.sentence, "One.", "Two.")) == "One. Two."
