"""Every one-shot strategy decides in a search of 200 steps as in one of 5,000."""

from __future__ import annotations

import pytest

from archloom.strategies import STRATEGIES
from archloom.strategies.base import OneShot
from archloom.testing import BudgetContract
from archloom.testing.budgets import check_decision, make_learnable_search

NEEDS_CELLS = ("pc_darts", "bayes_nas")  # edge weights and gates are parts of cells, which the toy has not
ONE_SHOT = [name for name, entry in STRATEGIES.items() if issubclass(entry.load(), OneShot) and name not in NEEDS_CELLS]
AT_LENGTH = ("darts", "gdas")  # 5,000 steps take about 8 s; the others differ by the same rule


@pytest.mark.parametrize("name", ONE_SHOT)
class TestBudgets(BudgetContract):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.strategy = name
        self.budgets = (200, 1000, 5000) if name in AT_LENGTH else (200, 1000)


@pytest.mark.parametrize("name", ["darts", "gdas"])
def test_a_constant_learning_rate_for_long_searches_decides_nothing_in_a_short_one(name) -> None:
    search = make_learnable_search(name, 200, settings={"learning_rate": 3e-4})
    with pytest.raises(AssertionError, match=r"after 200 steps the largest probability is 0\.2\d of a uniform 0\.25"):
        check_decision(search)


@pytest.mark.parametrize("name", ["enas", "tunas"])
def test_a_learning_rate_that_is_too_high_decides_by_chance(name) -> None:
    rate = {"learning_rate": 3.0}
    search = make_learnable_search(name, 200, settings={"policy": rate} if name == "tunas" else rate)
    with pytest.raises(AssertionError, match="after 200 steps"):
        check_decision(search)
