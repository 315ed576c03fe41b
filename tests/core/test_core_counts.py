"""One is singular."""

from __future__ import annotations

from archloom.core.counts import count_text
from archloom.searches.random_baseline import training_sentence


def test_one_is_singular() -> None:
    assert [count_text(count, "epoch") for count in (0, 1, 2000)] == ["0 epochs", "1 epoch", "2,000 epochs"]
    assert [count_text(count, "search", "searches") for count in (1, 2)] == ["1 search", "2 searches"]
    assert "hardly trained: 1 step, and" in training_sentence(1)
