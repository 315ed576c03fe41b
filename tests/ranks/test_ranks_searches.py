"""Several ranks that compute a part of every batch take the steps of one process, for every one-shot strategy."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rank_groups import WORKER, run_ranks
from rank_worker import CASES, RETRAINING

from archloom.strategies import STRATEGIES
from archloom.strategies.base import OneShot

CLOSE = {"rtol": 1e-6, "atol": 1e-9}
ALL = [*CASES, RETRAINING]
COUNTS = (1, 2, 3)  # of ranks; three have slices of 2, 3 and 3 images


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the ends of all cases by number of ranks and rank; one group of processes walks all cases."""
    folder = tmp_path_factory.mktemp("ranks")
    for count in COUNTS:
        run_ranks([WORKER, str(folder)], count)
    pairs = [(count, rank) for count in COUNTS for rank in range(count)]
    return {pair: torch.load(folder / f"{pair[0]}-{pair[1]}.pt", weights_only=False) for pair in pairs}


def test_every_one_shot_strategy_is_a_case() -> None:
    assert {name.split()[0] for name in CASES} == {
        name for name, entry in STRATEGIES.items() if issubclass(entry.load(), OneShot)
    }


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("case", ALL)
def test_ranks_take_the_steps_of_one_process(case: str, count: int, ends: Any) -> None:
    assert_close(ends[count, 0][case], ends[1, 0][case])


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("case", ALL)
def test_all_ranks_end_with_the_same_bits(case: str, count: int, ends: Any) -> None:
    for rank in range(1, count):
        assert_equal(ends[count, rank][case], ends[count, 0][case])


@pytest.mark.parametrize("case", ALL)
def test_the_steps_move_the_weights(case: str, ends: Any) -> None:
    """Or the comparisons above would show nothing."""
    metrics = ends[1, 0][case]["metrics"]
    assert metrics[0]["train_loss"] != metrics[-1]["train_loss"]


def assert_close(found: Any, expected: Any, place: str = "") -> None:
    _compare(found, expected, place, lambda one, other: torch.testing.assert_close(one, other, **CLOSE))


def assert_equal(found: Any, expected: Any, place: str = "") -> None:
    _compare(found, expected, place, lambda one, other: torch.testing.assert_close(one, other, rtol=0, atol=0))


def _compare(found: Any, expected: Any, place: str, check: Any) -> None:
    assert type(found) is type(expected), place
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), place
        for name in expected:
            _compare(found[name], expected[name], f"{place}/{name}", check)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), place
        for number, pair in enumerate(zip(found, expected, strict=True)):
            _compare(*pair, f"{place}/{number}", check)
    elif isinstance(expected, torch.Tensor | float):
        try:
            check(torch.as_tensor(found), torch.as_tensor(expected))
        except AssertionError as error:
            raise AssertionError(f"{place}: {error}") from error
    else:
        assert found == expected, place
