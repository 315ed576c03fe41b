"""The file that says how far a run is between two records."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from archloom.core.events import Advanced, Deriving, Started
from archloom.core.files import guard
from archloom.core.leases import LeaseLostError
from archloom.core.progress_file import EVERY, Progress, ProgressWriter, progress_path


class Times:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def write(tmp_path: Path, times: Times) -> ProgressWriter:
    return ProgressWriter(tmp_path, lambda: 60, clock=times)


def read(run: Path) -> Progress:
    return Progress.from_json(json.loads(progress_path(run).read_text()))


def list_names(run: Path) -> list[str]:
    return [path.name for path in (run / "checkpoints").iterdir()]


def advance(write: ProgressWriter, times: Times, position: int, *, at: float) -> None:
    times.now = 100.0 + at
    write(Advanced(position, 8, {}))


def test_the_file_is_replaced_at_most_every_other_second(tmp_path: Path, write: ProgressWriter, times: Times) -> None:
    write(Started("step", 0, 60, 20, ()))
    assert read(tmp_path) == Progress(position=0, total=60, units_per_record=20)
    advance(write, times, 1, at=EVERY / 2)
    assert read(tmp_path).position == 0
    advance(write, times, 4, at=EVERY)
    assert read(tmp_path).position == 4
    advance(write, times, 5, at=1.9 * EVERY)
    assert read(tmp_path).position == 4


def test_the_time_left_follows_from_the_units_since_the_run_resumed(
    tmp_path: Path, write: ProgressWriter, times: Times
) -> None:
    write(Started("step", 40, 60, 20, ()))
    assert read(tmp_path).seconds_left is None
    advance(write, times, 44, at=6.0)
    found = read(tmp_path)
    assert found.seconds_per_unit == pytest.approx(1.5)
    assert found.seconds_left == pytest.approx(1.5 * 16)
    assert [found.step_after(records) for records in (0, 1, 2, 3)] == [20, 20, 4, 0]


def test_a_total_that_a_budget_reduces_counts_from_then_on(tmp_path: Path, times: Times) -> None:
    totals = iter([60, 30])
    write = ProgressWriter(tmp_path, totals.__next__, clock=times)
    write(Started("step", 0, 60, 20, ()))
    advance(write, times, 10, at=5.0)
    assert read(tmp_path).total == 30
    assert read(tmp_path).seconds_left == pytest.approx(0.5 * 20)


def test_the_end_says_how_the_result_is_derived_and_then_the_file_goes(tmp_path: Path, write: ProgressWriter) -> None:
    write(Started("step", 0, 60, 20, ()))
    write(Deriving("racing 4 finalists"))
    assert read(tmp_path).doing == "racing 4 finalists"
    assert list_names(tmp_path) == ["progress.json"]
    write.remove()
    assert list(tmp_path.iterdir()) == []
    write.remove()


def test_checkpoints_stay(tmp_path: Path, write: ProgressWriter) -> None:
    write(Started("step", 0, 60, 20, ()))
    (tmp_path / "checkpoints/1.pt").touch()
    write.remove()
    assert list_names(tmp_path) == ["1.pt"]


def test_replacing_the_file_leaves_the_run_folder_as_it_was(
    tmp_path: Path, write: ProgressWriter, times: Times
) -> None:
    write(Started("step", 0, 60, 20, ()))
    os.utime(tmp_path, (1e9, 1e9))
    advance(write, times, 9, at=EVERY)
    assert read(tmp_path).position == 9
    assert tmp_path.stat().st_mtime == 1e9


def test_a_disk_that_fails_does_not_stop_the_run(tmp_path: Path, write: ProgressWriter, monkeypatch: Any) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", fail)
    write(Started("step", 0, 60, 20, ()))
    assert not progress_path(tmp_path).exists()


def test_a_process_that_lost_its_lease_writes_nothing(tmp_path: Path, write: ProgressWriter) -> None:
    def check() -> None:
        raise LeaseLostError("taken over")

    with guard(tmp_path, check), pytest.raises(LeaseLostError):
        write(Started("step", 0, 60, 20, ()))
    assert list_names(tmp_path) == []


@pytest.mark.parametrize("name", ["position", "total", "units_per_record"])
@pytest.mark.parametrize("number", [-1, 10**30])
def test_numbers_beyond_reason_are_no_progress(name: str, number: int) -> None:
    with pytest.raises(ValueError, match="must lie in"):
        Progress.from_json({"position": 1, "total": 2, "units_per_record": 1, name: number})


@pytest.mark.parametrize("seconds", [1e308, float("inf"), float("nan")])
def test_a_time_that_is_no_number_is_not_known(seconds: float) -> None:
    assert Progress(position=1, total=9, units_per_record=1, seconds_per_unit=seconds).seconds_left is None
