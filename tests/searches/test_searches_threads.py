"""Several torch threads are used only while they are faster than one. Time is simulated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from archloom.searches import threads
from archloom.searches.threads import WINDOW, ThreadWatch, choose_threads


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("two", "chosen"), [(1.9, 2), (1.05, 1), (0.01, 1)])
def test_the_faster_number_is_chosen_and_used(monkeypatch: pytest.MonkeyPatch, two: float, chosen: int) -> None:
    monkeypatch.setattr(threads, "_rate", lambda operation, clock: two if torch.get_num_threads() == 2 else 1.0)
    assert choose_threads() == chosen == torch.get_num_threads()


def test_a_rate_counts_operations_by_the_clock() -> None:
    now = [0.0]

    def operate() -> None:
        now[0] += 0.05

    assert threads._rate(operate, lambda: now[0]) == pytest.approx(20.0)


def count(watch: ThreadWatch, *seconds: float) -> None:
    for each in seconds:
        for _ in range(WINDOW):
            watch.count(each)


def test_a_steady_machine_keeps_its_threads() -> None:
    watch = ThreadWatch()
    count(watch, 1.0, 1.2, 0.9, 1.5)
    assert torch.get_num_threads() == 2


def test_a_machine_that_becomes_busy_steps_down_to_one_thread_and_stays_there() -> None:
    watch = ThreadWatch()
    count(watch, 1.0, 5.0)
    assert torch.get_num_threads() == 1  # tried
    count(watch, 2.0)
    assert torch.get_num_threads() == 1  # faster than the 5 before
    count(watch, 9.0)
    assert torch.get_num_threads() == 1


def test_threads_return_where_one_is_no_faster() -> None:
    watch = ThreadWatch()
    count(watch, 1.0, 5.0, 7.0)
    assert torch.get_num_threads() == 2
    count(watch, 5.0)
    assert torch.get_num_threads() == 2  # as slow as before: nothing new
