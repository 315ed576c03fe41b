"""Choose a size for a budget, on a machine of invented speed."""

from __future__ import annotations

import pytest

from archloom.core.durations import parse_duration
from archloom.core.errors import SettingError
from archloom.retrainings.sizes import FEW_IMAGES, LARGEST_FOR_FEW, TRAINING_SHARE, Budget, choose_size

COSTS = [1_000_000 * 2**size for size in range(7)]


def machine(size: int) -> float:
    """A microsecond per 10,000 multiply-adds, and a tenth of a millisecond besides."""
    return 1e-4 + COSTS[size] * 1e-10


@pytest.mark.parametrize(
    ("text", "seconds"), [("30m", 1800), ("1h30m", 5400), ("45s", 45), ("1.5h", 5400), ("2 h", 7200)]
)
def test_budgets_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "30 minutes please", "-5m", "0s", "1e9h", "5m!"])
def test_a_malformed_budget_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(SettingError, match="a budget is written like 30m, 2h or 1h30m"):
        parse_duration(text)


def test_the_largest_size_with_enough_epochs_is_chosen() -> None:
    budget = Budget(images=50_000, valid=5_000, side=32, seconds=3600)
    chosen = choose_size(budget, COSTS, machine)
    pace = [machine(size) * (50_000 + 5_000 / 3) for size in range(7)]
    enough = [size for size in range(7) if TRAINING_SHARE * 3600 / pace[size] >= 30]
    assert chosen.size == max(enough) < 6
    assert 30 <= chosen.epochs <= 60
    assert chosen.seconds <= TRAINING_SHARE * 3600
    assert "a larger network would only fit" in chosen.reason
    assert chosen.reason.endswith("in the budget; a data set of this size needs about 30")


def test_more_time_never_gives_a_smaller_network_or_more_than_the_time() -> None:
    sizes = []
    for minutes in (1, 2, 5, 10, 30, 100, 1000, 10_000):
        budget = Budget(images=20_000, valid=2_000, side=32, seconds=60.0 * minutes)
        chosen = choose_size(budget, COSTS, machine)
        sizes.append(chosen.size)
        assert chosen.seconds <= budget.seconds or chosen.epochs == 1
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (0, 6)


def test_few_images_get_more_epochs_smaller_networks_and_regularization() -> None:
    few, many = Budget(1_600, 180, 32, 1e6), Budget(50_000, 5_000, 32, 1e6)
    assert few.wanted_epochs == 120 and many.wanted_epochs == 30
    assert choose_size(few, COSTS, machine).size == LARGEST_FOR_FEW < choose_size(many, COSTS, machine).size
    assert choose_size(few, COSTS, machine).epochs == 240  # not the whole of eleven days
    assert few.images < FEW_IMAGES
    assert few.regularization_for(4)["network"]["drop_path"] > many.regularization_for(4)["network"]["drop_path"] == 0
    assert few.regularization_for(0)["network"]["dropout"] == 0  # the smallest have enough to do
    assert (
        few.regularization_for(4)["optimizer"]["weight_decay"] > many.regularization_for(4)["optimizer"]["weight_decay"]
    )


def test_a_budget_that_is_too_short_is_named() -> None:
    chosen = choose_size(Budget(50_000, 0, 32, 10), COSTS, machine)
    assert (chosen.size, chosen.epochs) == (0, 1)
    assert "use more time for 30" in chosen.reason


def test_only_two_sizes_are_measured_and_a_disturbance_is_tolerated() -> None:
    measured: list[int] = []

    def disturbed(size: int) -> float:
        measured.append(size)
        return 0.01 if size == 0 else 0.001

    chosen = choose_size(Budget(10_000, 0, 32, 600), COSTS, disturbed)
    assert measured == [0, 3]
    assert chosen.size == 3  # by proportion: 10 s an epoch, and 20 for the next one


def test_given_epochs_are_kept() -> None:
    budget = Budget(50_000, 0, 32, 3600)
    assert choose_size(budget, COSTS, machine, epochs=5).epochs == 5
    assert choose_size(budget, COSTS, machine, epochs=5).size > choose_size(budget, COSTS, machine).size


def test_a_batch_is_never_more_than_half_of_the_images() -> None:
    few = {"batch_size": 3, "cutout": 0, "keep": "last"}
    assert Budget(7, 1, 8, 60).regularization_for(0)["training"] == few
    many = {"batch_size": 64, "cutout": 8, "keep": "best"}
    assert Budget(20_000, 2_000, 32, 60).regularization_for(0)["training"] == many


def test_the_reason_names_a_small_data_set() -> None:
    chosen = choose_size(Budget(1_600, 180, 32, 60), COSTS, machine)
    assert chosen.reason.endswith("in the budget; a data set this small needs about 120")


def test_the_highest_cost_of_a_size_still_gets_enough_epochs_and_no_more() -> None:
    budget = Budget(images=20_000, valid=2_000, side=32, seconds=1200)
    chosen = choose_size(budget, COSTS, machine)

    def epochs_at(cost: float) -> int:
        return budget.epochs_at(1e-4 + cost * 1e-10)

    assert chosen.most_cost > COSTS[chosen.size]
    assert epochs_at(0.999 * chosen.most_cost) >= budget.wanted_epochs > epochs_at(1.001 * chosen.most_cost)


def test_the_highest_cost_is_never_below_that_of_the_chosen_size() -> None:
    hurried = choose_size(Budget(images=50_000, valid=5_000, side=32, seconds=10), COSTS, machine)
    assert "even the smallest network" in hurried.reason
    assert hurried.most_cost == COSTS[0]
    assert choose_size(Budget(100, 10, 8, 60), [5, 5], lambda size: 1e-3).most_cost == float("inf")


@pytest.mark.parametrize(("valid", "kept"), [(80, "last"), (999, "last"), (1_000, "best")])
def test_few_validation_images_do_not_pick_the_epoch(valid: int, kept: str) -> None:
    assert Budget(9 * valid, valid, 32, 60).regularization_for(0)["training"]["keep"] == kept
