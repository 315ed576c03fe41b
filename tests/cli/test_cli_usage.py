"""Words that the command line cannot read: one line with the option, the rule, the value and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from archloom.cli.usage import find_value

Archloom = Callable[..., Any]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("search --epochs x", "--epochs must be a valid integer, got 'x'; see: archloom search --help"),
        ("search --epochs=1.5", "--epochs must be a valid integer, got '1.5'; see: archloom search --help"),
        ("search --epocs 3", "unknown option '--epocs'; did you mean '--epochs'?"),
        ("search --nonsense 3", "unknown option '--nonsense'; see: archloom search --help"),
        ("serch", "no such command 'serch'; did you mean 'search', 'serve'?"),
        ("check plugn", "no such command 'plugn'; did you mean 'plugin'?"),
        ("predict", "missing argument 'model'; see: archloom predict --help"),
        ("search a b", "got unexpected extra argument(s) (b); see: archloom search --help"),
    ],
)
def test_words_that_cannot_be_read_are_one_line(archloom: Archloom, words: str, line: str) -> None:
    finished = archloom(*words.split())
    assert (finished.code, finished.out, finished.lines) == (2, "", [f"error: {line}"])


def test_a_number_out_of_range_is_quoted(archloom: Archloom) -> None:
    finished = archloom("search", "--devices", "0")
    assert (finished.code, len(finished.lines)) == (2, 1)
    assert finished.lines[0].startswith("error: --devices must be ") and "1, got '0'; see: " in finished.lines[0]


def test_the_last_value_of_an_option_counts() -> None:
    words = ["search", "--epochs", "x", "--seed=3", "--epochs=y"]
    assert (find_value(words, ["--epochs"]), find_value(words, ["--seed"])) == ("y", "3")
    assert find_value(["search", "--epochs"], ["--epochs"]) == ""
