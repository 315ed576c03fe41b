"""The commit-msg hook accepts `area: verb what` within 72 characters and names what is wrong with anything else."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "check_subject.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module("check_subject")


@pytest.mark.parametrize(
    "subject",
    [
        "docs: rewrite the retrain page in plain words",
        "search/loop: resume from the last checkpoint",
        "cli, docs: rename an option",
        "speed: need one pass less",  # endings of participles that are none
        "tests: pass a seed",
        "tests: focus on the sign",
        "spaces: embed the table",
        "a: " + "x" * 67 + " y",  # 72 characters
        "Merge branch 'main' into docs",
        'Revert "docs: rewrite the retrain page"',
        "fixup! docs: rewrite the retrain page",
    ],
)
def test_good_subjects_pass(script: ModuleType, subject: str) -> None:
    assert script.find_problem(subject) is None


@pytest.mark.parametrize(
    ("subject", "problem"),
    [
        ("", "must read 'area: verb what'"),
        ("rewrite the retrain page", "must read 'area: verb what'"),
        ("Docs: rewrite the retrain page", "must read 'area: verb what'"),
        ("docs: Rewrite the retrain page", "must read 'area: verb what'"),
        ("docs:rewrite the page", "must read 'area: verb what'"),
        ("docs: rewrite", "must read 'area: verb what'"),
        ("docs: rewrite the page.", "must not end with a full stop"),
        ("docs: added a page", "must have an imperative verb after the area, got 'added'"),
        ("docs: adding a page", "must have an imperative verb after the area, got 'adding'"),
        ("docs: adds a page", "must have an imperative verb after the area, got 'adds'"),
        ("a: " + "x" * 68 + " y", "at most 72 characters, got 73"),
    ],
)
def test_bad_subjects_are_refused_in_one_line(script: ModuleType, subject: str, problem: str) -> None:
    found = script.find_problem(subject)
    assert found is not None
    assert problem in found
    assert "\n" not in found


def test_the_subject_is_the_first_line_that_git_keeps(script: ModuleType) -> None:
    assert script.subject_of("\n# Please enter a message\n\ndocs: add a page\n\nwhy\n") == "docs: add a page"
    assert script.subject_of("# nothing but comments\n") == ""


@pytest.mark.parametrize(("message", "code"), [("docs: add a page\n\nwhy\n", 0), ("A page\n", 1)])
def test_git_sees_the_exit_code(tmp_path: Path, message: str, code: int) -> None:
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(message, encoding="utf-8")
    ended = subprocess.run([sys.executable, str(SCRIPT), str(file)], capture_output=True, text=True)
    assert ended.returncode == code
    assert ended.stderr.count("\n") == code  # one line for a problem, none without
