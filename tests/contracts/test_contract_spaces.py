"""The contract of every search space: a row in SPACES is tested here."""

from __future__ import annotations

import pytest

from archloom.spaces import SPACES
from archloom.testing import SpaceContract


@pytest.mark.parametrize("name", SPACES)
class TestSpace(SpaceContract):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.space = name


def test_every_space_says_what_it_is_in_one_line() -> None:
    for entry in SPACES.values():
        assert 20 < len(entry.describe()) <= 120
