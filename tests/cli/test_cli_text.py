"""Bad text from the command line: one clear line and exit code 2, before anything is trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GOOD: dict[str, bytes] = {
    "train": b"the cat sat\nthe dog sat\n" * 40,
    "valid": b"the cat\n" * 40,
    "test": b"the dog\n" * 40,
}


@pytest.mark.parametrize(
    ("parts", "settings", "message"),
    [
        ({"train": b""}, [], "train.txt is empty; it needs at least one line of words"),
        ({"valid": b" \n\n"}, [], "valid.txt is empty"),
        ({"train": b"\x7fELF\0\0\1"}, [], "must be text in UTF-8, but it is a binary file; name a text file"),
        ({"test": b"the unicorn\n"}, [], "words that the training text lacks, such as 'unicorn'"),
        ({"train": b"the the the\n" * 40}, [], "must have at least 2 different words, got 1"),
        ({}, ["data.vocabulary=1"], "data.vocabulary must be 0 (all words) or at least 2, got 1"),
        ({}, ["network.hidden=1"], "network.hidden must lie in 2..65536, got 1"),
    ],
)
@pytest.mark.parametrize("command", ["search", "retrain"])
def test_bad_text_gets_one_line(
    archloom: Callable[..., Any],
    command: str,
    parts: dict[str, bytes],
    settings: list[str],
    message: str,
    tmp_path: Path,
) -> None:
    for part, content in {**GOOD, **parts}.items():
        (tmp_path / f"{part}.txt").write_bytes(content)
    if command == "search":
        call = ["search", "--space", "recurrent", "--strategy", "gdas"]
    else:
        call = ["retrain", "gdas_rnn", "--recipe", "text_small"]
    call += ["--data", "text", "--data-dir", str(tmp_path), "--out", str(tmp_path / "run")]
    for setting in settings:
        call += ["--set", setting]
    done = archloom(*call)
    assert done.code == 2, done.err
    errors = [line for line in done.err.splitlines() if line.startswith("error")]
    assert len(errors) == 1 and message in errors[0], done.err
    assert "Traceback" not in done.err and not list(tmp_path.glob("run/metrics.jsonl"))


def test_words_of_a_model_that_is_not_there_are_one_line(archloom: Callable[..., Any], tmp_path: Path) -> None:
    done = archloom("predict", str(tmp_path / "gone"), "letter.txt", "--words", "5")
    assert (done.code, done.err) == (2, f"error: there is no model {tmp_path / 'gone'}\n")
