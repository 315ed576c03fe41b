"""The verdict of a race: differences with intervals, random contestants beaten, and references that win."""

from __future__ import annotations

import random

import pytest
import torch
from scipy import stats

from archloom.searches.finalist_race import RaceOutcome, pack_bits
from archloom.searches.race_certainty import Certainty
from archloom.searches.race_verdict import (
    RaceResult,
    compare_trainings,
    list_changes,
    summarize_race,
    yield_to_reference,
)
from archloom.searches.records import FinalistRecord
from archloom.spaces import Architecture


def record(name: str, correct: list[bool], *, origin: str, steps: int = 6, repeat: int = 0) -> FinalistRecord:
    accuracy = sum(correct) / len(correct)
    bits = pack_bits(torch.tensor(correct))
    return FinalistRecord(
        name, Architecture({"a": name}), steps, 1.0, accuracy, 10, origin=origin, repeat=repeat, correct=bits
    )


def flags(right: int, of: int = 100) -> list[bool]:
    return [True] * right + [False] * (of - right)


def test_one_seed_gives_the_paired_interval_over_images() -> None:
    own, other = [record("w", flags(60), origin="derived")], [record("r", flags(50), origin="ResNet block")]
    found = compare_trainings(own, other)
    differences = [100.0] * 10 + [0.0] * 90
    interval = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert found.points == pytest.approx(10.0)
    assert (found.low, found.high) == pytest.approx(tuple(interval))
    assert (found.steps, found.seeds, found.images, found.other) == (6, 1, 100, "ResNet block")


def test_seeds_widen_the_interval() -> None:
    steady = [record("w", flags(60), origin="x", repeat=number) for number in (0, 1)]
    shaky = [record("w", flags(60 + 8 * (2 * number - 1)), origin="x", repeat=number) for number in (0, 1)]
    other = [record("r", flags(50), origin="y", repeat=number) for number in (0, 1)]
    narrow, wide = compare_trainings(steady, other), compare_trainings(shaky, other)
    assert narrow.points == pytest.approx(wide.points)
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_the_longest_training_of_both_counts() -> None:
    own = [record("w", flags(90), origin="x", steps=2), record("w", flags(60), origin="x", steps=6)]
    other = [record("r", flags(10), origin="y", steps=2), record("r", flags(70), origin="y", steps=6)]
    assert compare_trainings(own, other).points == pytest.approx(-10.0)
    assert compare_trainings(own[:1], other).points == pytest.approx(80.0)


def test_the_interval_covers_the_truth() -> None:
    """Accuracies differ by 5 points in truth; images and seeds are drawn anew 300 times."""
    rng, covered = random.Random(0), 0
    for _ in range(300):
        ease = [rng.random() for _ in range(200)]

        def train(level: float, name: str, ease=ease) -> list[FinalistRecord]:
            luck = [rng.gauss(0, 0.02) for _ in range(2)]
            return [
                record(name, [rng.random() < min(1, max(0, level + shift + 0.4 * (one - 0.5))) for one in ease],
                       origin=name, repeat=number)
                for number, shift in enumerate(luck)
            ]  # fmt: skip

        found = compare_trainings(train(0.55, "w"), train(0.50, "r"))
        covered += found.low <= 5.0 <= found.high
    assert covered >= 0.92 * 300


def outcome(*records: FinalistRecord, winner: str = "w") -> RaceOutcome:
    return RaceOutcome(Architecture({"a": winner}), records)


def test_a_reference_that_is_clearly_better_is_returned() -> None:
    small = record("w", flags(40), origin="derived"), record("r", flags(70), origin="largest")
    assert yield_to_reference(outcome(*small)).winner == Architecture({"a": "r"})
    close = record("w", flags(60), origin="derived"), record("r", flags(61), origin="largest")
    assert yield_to_reference(outcome(*close)).winner == Architecture({"a": "w"})
    rival = record("w", flags(40), origin="derived"), record("r", flags(70), origin="random")
    assert yield_to_reference(outcome(*rival)).winner == Architecture({"a": "w"})


@pytest.mark.parametrize(("right", "winner"), [(40, "r"), (80, "w")])
def test_the_largest_gives_way_to_a_reference_that_is_clearly_better(right: int, winner: str) -> None:
    """Its size won the race; the trainings themselves rank it below."""
    own = record("w", flags(10 * right, 1000), origin="largest")
    other = record("r", flags(600, 1000), origin="ResNet block")
    assert yield_to_reference(outcome(own, other)).winner == Architecture({"a": winner})


@pytest.mark.parametrize(
    ("right", "of", "winner"),
    [
        (53, 100, "r"),  # 3 points of 100 images are nothing
        (30, 100, "r"),  # nor is it worse
        (95, 100, "w"),  # evidence counts, however few images there are
        (265, 500, "w"),  # as many images as it takes to tell
    ],
)
def test_few_images_return_a_reference_unless_another_is_shown_to_be_better(right: int, of: int, winner: str) -> None:
    for origin in ("proposal", "largest"):
        own, other = (
            record("w", flags(right, of), origin=origin),
            record("r", flags(of // 2, of), origin="ResNet block"),
        )
        decided = yield_to_reference(outcome(own, other, record("x", flags(of // 3, of), origin="largest")))
        assert decided.winner == Architecture({"a": winner})
        said = "no other contestant is shown to beat this reference by so few held-out images (ResNet block)"
        assert (said in summarize_race(decided, derived=None).sentence) == (winner == "r")


def test_random_contestants_count_after_equally_many_steps() -> None:
    records = [
        record("w", flags(50), origin="derived", steps=2),
        record("w", flags(90), origin="derived", steps=6),
        record("x", flags(45), origin="random", steps=2),
        record("y", flags(55), origin="random", steps=2),
        record("z", flags(95), origin="random", steps=6),
        record("z", flags(40), origin="random", steps=2),
        record("r", flags(49), origin="ResNet block", steps=2),
    ]
    found = summarize_race(outcome(*records), derived="d")
    assert (found.beaten_random, found.random) == (2, 3)
    assert (found.trained, found.contestants, found.best_by_score) == (7, 5, "z")
    assert found.sentence.startswith("By equal short trainings: 1.0 points above the ResNet block after 2 steps (95 % ")
    assert found.sentence.endswith("better than 2 of 3 random architectures.")
    assert found.trained_text == (
        "The finalist race trained 5 architectures (7 short trainings). The search alone derived d. "
        "By the score alone, z would have won."
    )


def test_what_the_race_changed_is_said() -> None:
    derived = Architecture({"0->1": "skip_connect", "0->2": "none", "1->2": "none"})
    winner = Architecture({"0->1": "nor_conv_3x3", "0->2": "none", "1->2": "skip_connect"})
    changes = list_changes(derived, winner)
    assert changes == ("0->1 from skip_connect to nor_conv_3x3", "1->2 from none to skip_connect")
    records = [record("w", flags(50), origin="proposal"), record("d", flags(40), origin="derived")]
    found = summarize_race(outcome(*records), derived="d", changes=changes)
    assert found.trained_text.endswith(
        "The search alone derived d. "
        "The race changed 0->1 from skip_connect to nor_conv_3x3, 1->2 from none to skip_connect."
    )
    many = summarize_race(outcome(*records), derived="d", changes=tuple("abcdefgh"))
    assert many.trained_text.endswith("The race changed a, b, c, d, e, f, 2 more.")
    assert "changed" not in summarize_race(outcome(*records), derived="d").trained_text


def test_a_winner_that_is_a_reference_is_named() -> None:
    records = [record("w", flags(250, 500), origin="largest"), record("r", flags(200, 500), origin="ResNet block")]
    said = "no other contestant beat this reference (largest)"
    assert f"{said}, 10.0 points above the ResNet block" in summarize_race(outcome(*records), derived=None).sentence
    worse = [record("w", flags(250, 500), origin="largest"), record("r", flags(300, 500), origin="ResNet block")]
    found = summarize_race(outcome(*worse), derived=None).sentence
    assert f"{said} by loss and size, 10.0 points below the ResNet block" in found


def test_how_sure_the_race_is_follows_how_many_were_trained() -> None:
    records = [record("w", flags(50), origin="derived"), record("x", flags(40), origin="random")]
    sure = Certainty(probability=0.624, contestants=2, trainings=2)
    assert summarize_race(outcome(*records), derived="d", certainty=sure).trained_text == (
        f"The finalist race trained 2 architectures (2 short trainings). {sure.sentence} The search alone derived d."
    )


def test_a_result_survives_json() -> None:
    records = [record("w", flags(50), origin="derived"), record("r", flags(49), origin="ResNet block")]
    sure = Certainty(probability=0.624, contestants=2, trainings=2)
    found = summarize_race(outcome(*records), derived="d", certainty=sure)
    from archloom.core.json_object import to_json_object

    again = RaceResult.from_json(to_json_object(found))
    assert again.sentence == found.sentence
    assert tuple(again.references) == tuple(found.references)
    assert again.certainty == sure
    assert summarize_race(outcome(*records), derived="d").certainty is None
