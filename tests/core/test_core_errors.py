"""The error tree, and how an unknown name is answered."""

from __future__ import annotations

import pytest

from archloom.core import errors
from archloom.core.errors import ArchloomError, SettingError, escape_controls, suggestion


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


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("plain ─ ü 猫\n\tnext", "plain ─ ü 猫\n\tnext"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("cat\u202egnp.exe", "cat\\u202egnp.exe"),
        ("a\rb\x00\x7f\x9b", "a\\rb\\x00\\x7f\\x9b"),
        ("line\u2028end\ud800", "line\\u2028end\\ud800"),
    ],
)
def test_control_characters_are_escaped(text: str, printed: str) -> None:
    assert escape_controls(text) == printed


def test_quotes_are_short_and_the_rest_stays() -> None:
    error = ArchloomError(f"unknown name '{'x' * 500}'; known: '{'y' * 200}', {'z' * 300}")
    assert str(error) == f"unknown name '{'x' * 200}...'; known: '{'y' * 200}', {'z' * 300}"
    assert SettingError([f"'{'x' * 201}'"]).problems == (f"'{'x' * 200}...'",)
