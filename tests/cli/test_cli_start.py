"""A budget counts from the moment when the system started the process."""

from __future__ import annotations

import sys
import time

import pytest

from archloom.cli import start


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_age_of_this_process_is_at_least_its_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    age = start.read_age()
    assert age > 0 and age > 0.1 * time.process_time()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_a_shell_waited_before_it_became_this_process_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.process_time", lambda: 0.2)
    monkeypatch.setattr("time.clock_gettime", lambda clock: time.monotonic() + 1e6)  # it was started long ago
    assert start.read_age() == pytest.approx(0.2 / start.LEAST_SHARE)


def test_a_system_that_does_not_say_counts_from_the_script_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pathlib.Path.read_text", lambda path, **options: "no such thing")
    assert start.read_age() == 0.0


def test_nothing_counts_where_python_code_calls() -> None:
    assert start.seconds_since_start() == 0.0
