"""The choice of a size for a budget, with a machine whose speed is made up."""

from __future__ import annotations

import pytest

from archloom.core.errors import SettingError
from archloom.retrainings.sizes import FEW_IMAGES, LARGEST_FOR_FEW, SPENT_ON_TRAINING, Job, choose, seconds_of

COSTS = [1_000_000 * 2**size for size in range(7)]


def machine(size: int) -> float:
    """A microsecond per 10,000 multiply-adds, and a tenth of a millisecond besides."""
    return 1e-4 + COSTS[size] * 1e-10


@pytest.mark.parametrize(
    ("text", "seconds"), [("30m", 1800), ("1h30m", 5400), ("45s", 45), ("1.5h", 5400), ("2 h", 7200)]
)
def test_budgets_are_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "30 minutes please", "-5m", "0s", "1e9h", "5m!"])
def test_what_is_no_budget_is_a_line(text: str) -> None:
    with pytest.raises(SettingError, match="a budget is written like 30m, 2h or 1h30m"):
        seconds_of(text)


def test_it_is_the_largest_that_gets_enough_epochs() -> None:
    job = Job(images=50_000, valid=5_000, side=32, seconds=3600)
    chosen = choose(job, COSTS, machine)
    pace = [machine(size) * (50_000 + 5_000 / 3) for size in range(7)]
    enough = [size for size in range(7) if SPENT_ON_TRAINING * 3600 / pace[size] >= 30]
    assert chosen.size == max(enough) < 6
    assert 30 <= chosen.epochs <= 60
    assert chosen.seconds <= SPENT_ON_TRAINING * 3600
    assert "the next larger network would get" in chosen.why


def test_more_time_never_gives_a_smaller_network_or_more_than_the_time() -> None:
    sizes = []
    for minutes in (1, 2, 5, 10, 30, 100, 1000, 10_000):
        job = Job(images=20_000, valid=2_000, side=32, seconds=60.0 * minutes)
        chosen = choose(job, COSTS, machine)
        sizes.append(chosen.size)
        assert chosen.seconds <= job.seconds or chosen.epochs == 1
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (0, 6)


def test_few_images_are_seen_more_often_by_smaller_and_closer_held_networks() -> None:
    few, many = Job(1_600, 180, 32, 1e6), Job(50_000, 5_000, 32, 1e6)
    assert few.wanted_epochs == 120 and many.wanted_epochs == 30
    assert choose(few, COSTS, machine).size == LARGEST_FOR_FEW < choose(many, COSTS, machine).size
    assert choose(few, COSTS, machine).epochs == 240  # not the whole of eleven days
    assert few.images < FEW_IMAGES
    assert few.held(4)["network"]["drop_path"] > many.held(4)["network"]["drop_path"] == 0
    assert few.held(0)["network"]["dropout"] == 0  # the smallest have enough to do
    assert few.held(4)["optimizer"]["weight_decay"] > many.held(4)["optimizer"]["weight_decay"]


def test_too_little_time_is_told() -> None:
    chosen = choose(Job(50_000, 0, 32, 10), COSTS, machine)
    assert (chosen.size, chosen.epochs) == (0, 1)
    assert "give it more time" in chosen.why


def test_only_two_sizes_are_measured_and_a_disturbance_is_borne() -> None:
    asked: list[int] = []

    def disturbed(size: int) -> float:
        asked.append(size)
        return 0.01 if size == 0 else 0.001

    chosen = choose(Job(10_000, 0, 32, 600), COSTS, disturbed)
    assert asked == [0, 3]
    assert chosen.size == 3  # by proportion: 10 s an epoch, and 20 for the next one


def test_epochs_that_somebody_chose_stay() -> None:
    job = Job(50_000, 0, 32, 3600)
    assert choose(job, COSTS, machine, epochs=5).epochs == 5
    assert choose(job, COSTS, machine, epochs=5).size > choose(job, COSTS, machine).size


def test_a_batch_is_never_more_than_half_of_the_images() -> None:
    assert Job(7, 1, 8, 60).held(0)["training"] == {"batch_size": 3, "cutout": 0}
    assert Job(20_000, 1, 32, 60).held(0)["training"] == {"batch_size": 64, "cutout": 8}
