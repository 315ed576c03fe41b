"""The first signal saves, the second quits, and afterwards signals are what they were."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from archloom.cli.interactive import StopRequest, run_interactively, stop_on_signals
from archloom.core.stop_signals import STOP_SIGNALS
from archloom.execution.loop import Interrupted


def interrupted_by(*numbers: int) -> Callable[..., Any]:
    """A search that is sent signals while it runs, and obeys the first."""

    def begin(listener: object, stop: Callable[[], bool]) -> Any:
        for number in numbers:
            os.kill(os.getpid(), number)
        assert stop()
        raise Interrupted

    return begin


@pytest.mark.parametrize(("number", "code"), [(number, 128 + number) for number in STOP_SIGNALS])
def test_a_signal_saves_and_prints_how_to_continue(
    number: signal.Signals, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended:
        run_interactively(interrupted_by(number), print, folder=Path("my runs/a"), quiet=True)
    assert ended.value.exit_code == code
    lines = [line for line in capfd.readouterr().err.splitlines() if line]
    assert lines == [
        "saving; press Ctrl-C again to quit at once",
        "stopped and saved; continue with: archloom resume 'my runs/a'",
    ]


def test_the_second_signal_quits_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        run_interactively(interrupted_by(signal.SIGINT, signal.SIGINT), print, folder=Path("a"), quiet=True)
    assert ended.value.exit_code == 130
    last = capfd.readouterr().err.splitlines()[-1]
    assert last == "stopped; what was saved before is kept; continue with: archloom resume a"


def test_signals_are_handled_only_within() -> None:
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    with stop_on_signals() as stop:
        assert [signal.getsignal(number) for number in STOP_SIGNALS] == [stop.handle] * 5
        assert not stop()
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


def test_a_closed_terminal_does_not_keep_a_search_from_stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(descriptor: int, data: bytes) -> int:
        raise OSError("closed")

    monkeypatch.setattr(os, "write", closed)
    stop = StopRequest()
    stop.handle(signal.SIGINT, None)
    assert stop()


def test_the_result_is_shown_at_the_end() -> None:
    shown: list[object] = []
    run_interactively(
        lambda listener, stop: "a result", lambda result, console: shown.append(result), folder=Path("a"), quiet=True
    )
    assert shown == ["a result"]


@pytest.mark.parametrize(
    ("first", "second", "quits"),
    [
        (signal.SIGTERM, signal.SIGTERM, True),
        (signal.SIGHUP, signal.SIGINT, True),
        (signal.SIGUSR1, signal.SIGTERM, False),  # as batch systems send them
        (signal.SIGXCPU, signal.SIGXCPU, False),  # as the system repeats it
        (signal.SIGINT, signal.SIGHUP, False),
    ],
)
def test_only_a_person_cuts_the_saving_short(first: int, second: int, quits: bool) -> None:
    stop = StopRequest()
    stop.handle(first, None)
    with pytest.raises(KeyboardInterrupt) if quits else contextlib.nullcontext():
        stop.handle(second, None)
    assert stop() and stop.exit_code == 128 + first


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
