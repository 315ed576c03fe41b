"""Values in JSON objects with gaps."""

from __future__ import annotations

from archloom.reports.history import find


def test_a_missing_step_of_a_path_gives_none() -> None:
    assert find({"a": {"b": 1}}, "a", "b") == 1
    assert find({"a": 3}, "a", "b") is None
    assert find(None, "a") is None
