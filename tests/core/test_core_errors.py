"""The error tree, and how an unknown name is answered."""

from __future__ import annotations

import pytest

from archloom.core import errors
from archloom.core.errors import ArchloomError, SettingError, suggestion


@pytest.mark.parametrize("name", ["SettingError", "ParseError", "DataError", "BenchmarkError", "CheckpointError"])
def test_every_error_is_an_archloom_error_and_a_value_error(name: str) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, ArchloomError)
    assert issubclass(kind, ValueError)


def test_one_problem_is_its_own_message() -> None:
    error = SettingError("steps must be positive, got 0")
    assert error.problems == ("steps must be positive, got 0",)
    assert str(error) == "steps must be positive, got 0"


def test_problems_are_collected_one_per_line() -> None:
    error = SettingError(["a must be 1, got 2", "b must be 3, got 4"])
    assert error.problems == ("a must be 1, got 2", "b must be 3, got 4")
    assert str(error) == "a must be 1, got 2\nb must be 3, got 4"


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("temperature_strat", ["temperature_start", "seed"], "; did you mean 'temperature_start'?"),
        ("xyz", ["gdas", "darts"], "; known: darts, gdas"),
        ("xyz", [], ""),
    ],
)
def test_suggestion(name: str, known: list[str], expected: str) -> None:
    assert suggestion(name, known) == expected


def test_a_long_list_of_known_names_is_cut() -> None:
    names = [f"name{number:03d}" for number in range(500)]
    answer = suggestion("xyz", names)
    assert answer.startswith("; known: name000, name001, ")
    assert answer.endswith(", ...")
    assert len(answer) < 300
