"""Problems are collected and raised together."""

from __future__ import annotations

import pytest

from archloom.core.errors import DataError, SettingError
from archloom.core.problems import Problems


def fail_with(error: Exception) -> None:
    raise error


def test_nothing_is_raised_without_a_problem() -> None:
    problems = Problems()
    assert problems.attempt(lambda: 3) == 3
    problems.raise_if_any()
    assert len(problems) == 0


def test_all_lines_are_raised_at_once_each_with_its_prefix() -> None:
    problems = Problems()
    problems.add("first")
    assert problems.attempt(lambda: fail_with(SettingError(["second", "third"])), prefix="entry a: ") is None
    assert problems.attempt(lambda: fail_with(DataError("fourth"))) is None
    with pytest.raises(SettingError) as caught:
        problems.raise_if_any()
    assert caught.value.problems == ("first", "entry a: second", "entry a: third", "fourth")


def test_an_error_of_torch_becomes_a_line_only_where_the_part_has_a_name() -> None:
    problems = Problems()
    problems.attempt(lambda: fail_with(RuntimeError("too\nlarge")), what="network")
    with pytest.raises(SettingError, match=r"^network cannot be built: too large$"):
        problems.raise_if_any()
    with pytest.raises(RuntimeError, match="too"):
        problems.attempt(lambda: fail_with(RuntimeError("too\nlarge")))


def test_a_size_that_torch_cannot_count_with_is_a_line() -> None:
    problems = Problems()

    def build() -> None:
        raise TypeError("empty(): argument 'size' failed to unpack\nframe #0: c10::Error")

    assert problems.attempt(build, what="network") is None
    with pytest.raises(SettingError, match=r"^network cannot be built: empty\(\): .* failed to unpack frame #0"):
        problems.raise_if_any()
