import random

from archloom.searches.random_baseline import against_chance, table_verdict
from archloom.spaces import Nb201

SPACE = Nb201(nodes=3)
STANDING = {"dataset": "cifar10", "test": 93.66, "rank": 1204, "count": 15625, "regret": 0.71}


def share_of_convolutions(architecture) -> float:
    return sum("conv" in option for option in architecture.values()) / 3


def test_counts_how_many_chance_architectures_are_beaten():
    best = SPACE.parse("|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_1x1~1|")
    verdict = against_chance(SPACE, best, share_of_convolutions, standing=None, samples=40, rng=random.Random(0))
    rng = random.Random(0)
    drawn = [share_of_convolutions(SPACE.sample(rng)) for _ in range(40)]
    assert verdict["chance"] == sorted(drawn)
    assert verdict["shared_accuracy"] == 1.0
    beaten = sum(value < 1.0 for value in drawn)
    assert f"higher than {beaten} of 40 architectures drawn by chance (their median 33.3 %)" in verdict["verdict"]


def test_an_architecture_no_better_than_chance_beats_none():
    worst = SPACE.parse("|none~0|+|none~0|none~1|")
    verdict = against_chance(SPACE, worst, share_of_convolutions, standing=None, samples=10, rng=random.Random(0))
    assert "higher than 0 of 10" in verdict["verdict"]


def test_a_table_gives_the_exact_share():
    sentence = table_verdict(STANDING)
    assert "93.66 % test accuracy, rank 1,204 of 15,625, 0.71 points below the best" in sentence
    assert "92.3 times in 100" in sentence
    assert table_verdict(None) == ""


def test_no_samples_no_comparison():
    cell = SPACE.parse("|none~0|+|none~0|none~1|")
    verdict = against_chance(SPACE, cell, share_of_convolutions, standing=None, samples=0, rng=random.Random(0))
    assert verdict["verdict"] == ""
    assert (
        "table knows it"
        in against_chance(SPACE, cell, share_of_convolutions, standing=STANDING, samples=0, rng=random.Random(0))[
            "verdict"
        ]
    )
