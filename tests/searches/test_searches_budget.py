"""Phases keep to their share of a budget, on a machine that becomes slow, too. Time is simulated."""

from __future__ import annotations

import pytest

from archloom.searches.budget import END_SECONDS, PICTURE_SECONDS, SUPERNET_END, Budget, StepPace, time_steps


class Machine:
    """A clock that advances by the seconds of a step."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run_steps(seconds: float, planned: int, each, *, spent: float = 0.0) -> tuple[int, float]:
    """Take planned steps of `each(number)` seconds as a search does; return how many were taken, and when it ended."""
    clock = Machine()
    budget = Budget(seconds, clock, spent)
    pace, done, total = StepPace(budget, end=SUPERNET_END), 0, planned
    while done < total:
        clock.now += each(done)
        done += 1
        total = done + pace.steps_that_fit(total - done)
    return done, budget.elapsed


def test_a_machine_as_fast_as_planned_takes_all_steps() -> None:
    assert run_steps(100.0, 45, lambda number: 1.0) == (45, pytest.approx(45.0))


def test_a_machine_three_times_slower_halfway_ends_in_time() -> None:
    done, elapsed = run_steps(100.0, 45, lambda number: 1.0 if number < 22 else 3.0)
    assert 22 + 7 <= done < 45
    assert elapsed <= 1.1 * SUPERNET_END * 100


def test_a_machine_that_is_slow_from_the_start_ends_in_time() -> None:
    done, elapsed = run_steps(100.0, 450, lambda number: 1.0)
    assert done == pytest.approx(45, abs=2)
    assert elapsed <= 1.1 * SUPERNET_END * 100


def test_time_before_an_interruption_counts() -> None:
    assert run_steps(100.0, 45, lambda number: 1.0, spent=30.0)[0] == pytest.approx(15, abs=1)


def test_what_is_left_of_a_share() -> None:
    clock = Machine()
    budget = Budget(60.0, clock, spent=6.0)
    clock.now += 9.0
    assert budget.elapsed == pytest.approx(15.0)
    assert budget.left_until(0.5) == pytest.approx(15.0)
    assert budget.left_until(0.1) == pytest.approx(-9.0)


def test_the_end_keeps_its_time_by_the_share_of_a_core_that_there_is() -> None:
    clock, cpu = Machine(), Machine()
    budget = Budget(60.0, clock, cpu_clock=cpu)
    clock.now += 20.0
    cpu.now += 5.0
    assert budget.left_until(1.0) == pytest.approx(60.0 - 20.0 - END_SECONDS - PICTURE_SECONDS)
    budget.watch_load()
    assert budget.core_share == pytest.approx(0.25)
    assert budget.left_until(1.0) == pytest.approx(60.0 - 20.0 - 4 * END_SECONDS - 6.0)  # a tenth for the pictures


@pytest.mark.parametrize(("elapsed", "share", "has_time"), [(56.0, 1.0, True), (58.0, 1.0, False), (53.0, 0.25, False)])
def test_pictures_are_drawn_only_if_that_ends_in_time(elapsed: float, share: float, has_time: bool) -> None:
    clock, cpu = Machine(), Machine()
    budget = Budget(60.0, clock, cpu_clock=cpu)
    clock.now += elapsed
    cpu.now += share * elapsed
    assert budget.has_time_for_pictures() is has_time


def test_the_start_of_the_process_shows_how_busy_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.process_time", lambda: 2.0)
    assert Budget.begin_with_process(60.0, age=8.0).core_share == pytest.approx(0.25)
    assert Budget.begin_with_process(60.0, age=8.0).elapsed == pytest.approx(8.0, abs=1.0)
    assert Budget.begin_with_process(60.0, age=0.0).core_share == 1.0  # Python code calls
    assert Budget.begin_with_process(60.0, "cpu", age=8.0).core_share == 1.0


def test_a_machine_that_became_busy_shows_in_the_last_seconds() -> None:
    clock, cpu = Machine(), Machine()
    budget = Budget(600.0, clock, cpu_clock=cpu)
    for share in [1.0] * 60 + [0.2] * 8:
        clock.now += 1.0
        cpu.now += share
        budget.watch_load()
    assert budget.core_share == pytest.approx(0.2)


def test_time_spent_waiting_is_no_load() -> None:
    clock, cpu = Machine(), Machine()
    budget = Budget(600.0, clock, cpu_clock=cpu)
    clock.now += 200.0  # other processes train
    budget.forget_load()
    for _ in range(3):
        clock.now += 1.0
        cpu.now += 0.9
        budget.watch_load()
    assert budget.core_share == pytest.approx(0.9)


def test_a_supernet_gets_its_share_of_what_a_slow_start_left() -> None:
    clock = Machine()
    quick, slow = Budget(100.0, clock, spent=5.0), Budget(100.0, clock, spent=60.0)
    assert quick.end_of_supernet() == SUPERNET_END
    assert slow.end_of_supernet() == pytest.approx(0.6 + 0.3 * 0.4)


@pytest.mark.parametrize(("each", "taken"), [(0.1, 1 + 5), (3.0, 1 + 1), (0.9, 1 + 3)])
def test_a_timing_ends_in_time(each: float, taken: int) -> None:
    clock, steps = Machine(), []

    def step() -> None:
        clock.now += each
        steps.append(1)

    assert time_steps(step, clock, before=1, count=5, most=2.0) == pytest.approx(each)
    assert len(steps) == taken
