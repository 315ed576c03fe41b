"""Exit codes, the version and the help; and what must not be imported for them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import archloom as package
from archloom.cli import main
from archloom.cli.console import make_table, open_result_console
from archloom.core.errors import SettingError


def test_the_version_is_printed(archloom: Callable[..., Any]) -> None:
    finished = archloom("--version")
    assert (finished.code, finished.out) == (0, f"archloom {package.__version__}\n")


def test_no_arguments_print_the_help(archloom: Callable[..., Any]) -> None:
    finished = archloom()
    assert (finished.code, finished.out) == (0, archloom("--help").out)


@pytest.mark.parametrize("group", ["benchmark", "check", "latency", "space"])
def test_a_group_of_commands_alone_prints_its_help(archloom: Callable[..., Any], group: str) -> None:
    finished = archloom(group)
    assert (finished.code, finished.out) == (0, archloom(group, "--help").out)
    assert "Commands" in finished.out


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


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried ..."),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    ],
)
def test_memory_that_the_system_refuses_is_one_line(
    archloom: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(main, "app", failing_with(error))
    finished = archloom("search")
    assert finished.code == 2
    assert " ".join(finished.lines).startswith("error: the system gave no more memory (")
    assert "what was saved before is intact" in " ".join(finished.lines)


def test_control_characters_of_names_are_escaped(archloom: Callable[..., Any]) -> None:
    finished = archloom("search", "--space", "nb201\x1b[31m\u202e")
    assert finished.code == 2 and "\x1b" not in finished.err and "\u202e" not in finished.err
    assert "'nb201\\x1b[31m\\u202e'" in finished.err


def test_cells_of_tables_are_escaped_too(capsys: pytest.CaptureFixture[str]) -> None:
    open_result_console().print(make_table(("\x1b[1mname",), [("cat\u202e\x07",)]))
    printed = capsys.readouterr().out
    assert "\\x1b[1mname" in printed and "cat\\u202e\\x07" in printed


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_the_imports_ends_with_one_line(tmp_path: Path, number: int) -> None:
    (tmp_path / "rich.py").write_text("import os, time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from archloom.cli.start import run; run()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "search"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert process.stdout is not None and process.stdout.readline() == "importing\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (128 + number, "stopped; no run was in progress\n")
