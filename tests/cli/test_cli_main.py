"""Exit codes, the version and the help; and what must not be imported for them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import archloom as package
from archloom.cli import main
from archloom.core.errors import SettingError


def test_the_version_is_printed(archloom: Callable[..., Any]) -> None:
    finished = archloom("--version")
    assert (finished.code, finished.out) == (0, f"archloom {package.__version__}\n")


def test_no_arguments_print_the_help(archloom: Callable[..., Any]) -> None:
    finished = archloom()
    assert (finished.code, finished.out) == (0, archloom("--help").out)


def test_help_teaches_with_examples_that_name_real_commands(archloom: Callable[..., Any]) -> None:
    finished = archloom("--help")
    assert finished.code == 0
    examples = [line.split() for line in finished.out.splitlines() if line.strip().startswith("archloom ")]
    assert len(examples) >= 5
    for words in examples:
        assert archloom(words[1], "--help").code == 0, words


INSTANT = [
    "--version",
    "--help",
    "list strategies",
    "list recipes",
    "search --help",
    "latency fit --help",
    "run --help",
]


@pytest.mark.parametrize("arguments", [words.split() for words in INSTANT], ids=INSTANT)
def test_what_should_answer_at_once_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from archloom.cli.main import run\n"
        "try: run(sys.argv[1:])\n"
        "except SystemExit as ended: assert not ended.code\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'sklearn', 'PIL'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    finished = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout


def test_an_unknown_command_is_answered_with_the_nearest(archloom: Callable[..., Any]) -> None:
    finished = archloom("serch")
    assert finished.code == 2
    assert "'search'" in finished.err


def test_an_unknown_option_is_answered_with_the_nearest(archloom: Callable[..., Any]) -> None:
    finished = archloom("search", "--epocs", "3")
    assert finished.code == 2
    assert "--epochs" in finished.err


def failing_with(error: BaseException) -> Callable[..., None]:
    def fail(**options: object) -> None:
        raise error

    return fail


def test_every_problem_of_a_user_is_a_line(archloom: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "app", failing_with(SettingError(["one [bold]thing", "another " + "long " * 40])))
    finished = archloom("search")
    assert finished.code == 2
    assert finished.lines == ["error: one [bold]thing", "error: another " + ("long " * 40)]
    assert finished.out == ""


def test_an_interruption_has_the_code_of_a_shell(archloom: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "app", failing_with(KeyboardInterrupt()))
    assert archloom("search").code == 130


def test_an_unexpected_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "app", failing_with(RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        main.run(["search"])
