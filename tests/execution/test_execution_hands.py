"""Tasks in this process, and the same tasks in several."""

from __future__ import annotations

import os
import time

import pytest
import torch

from archloom.core.errors import ArchloomError
from archloom.execution.hands import InTurn, SideBySide


class Stop(Exception):  # noqa: N818 - nothing went wrong
    pass


def describe(number: int, ask) -> tuple[int, int, int]:
    ask()
    return number**2, os.getpid(), torch.get_num_threads()


def die(number: int, ask) -> None:
    os._exit(3)


def fail(number: int, ask) -> None:
    raise ArchloomError(f"{number} cannot be done")


def sleep(number: int, ask) -> None:
    time.sleep(60)


def one_thread() -> None:
    torch.set_num_threads(1)


def never() -> None:
    pass


TASKS = [(number,) for number in range(5)]


def test_in_turn_is_this_process_and_asks_before_it_goes_on():
    with InTurn(describe) as hands:
        assert [(square, process) for square, process, _ in hands.do(TASKS, never)] == [
            (square, os.getpid()) for square in (0, 1, 4, 9, 16)
        ]
        with pytest.raises(Stop):
            hands.do(TASKS, stop_after(2))


def stop_after(count: int):
    left = iter(range(count))

    def ask() -> None:
        if next(left, None) is None:
            raise Stop

    return ask


def test_side_by_side_are_other_processes_that_are_prepared_and_answer_in_order():
    with SideBySide(describe, 2, prepare=one_thread) as hands:
        done = hands.do(TASKS, never) + hands.do([(7,)], never)
    assert [square for square, _, _ in done] == [0, 1, 4, 9, 16, 49]
    assert os.getpid() not in {process for _, process, _ in done}
    assert {threads for _, _, threads in done} == {1}


def test_work_may_be_made_on_the_spot():
    numbers = torch.arange(4)
    with SideBySide(lambda place, ask: int(numbers[place]) + 1, 2, prepare=never) as hands:
        assert hands.do([(3,), (0,)], never) == [4, 1]


def test_failures_come_over_as_they_are():
    with SideBySide(fail, 1, prepare=never) as hands, pytest.raises(ArchloomError, match="1 cannot be done"):
        hands.do([(1,)], never)


def test_a_process_that_dies_is_told_in_a_line():
    with SideBySide(die, 1, prepare=never) as hands, pytest.raises(ArchloomError, match=r"ended before .* be resumed"):
        hands.do([(1,)], never)


def test_who_asks_to_stop_does_not_wait_for_what_is_under_way():
    with pytest.raises(Stop), SideBySide(sleep, 1, prepare=never) as hands:
        hands.do([(1,)], stop_after(1))
