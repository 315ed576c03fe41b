"""Comparing from Python: finished runs stay, interrupted ones resume, whatever is killed and whenever."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archloom.comparisons import run as api
from archloom.comparisons.results import ComparisonResult
from archloom.comparisons.spec import ComparisonSpec
from archloom.core.errors import ArchloomError
from archloom.core.events import Failure, JobEnded
from archloom.execution import process_executor
from archloom.execution.executors import SerialExecutor
from archloom.execution.loop import Interrupted
from archloom.execution.process_executor import ProcessExecutor
from archloom.execution.run_folder import RunFolder
from archloom.searches.black_box import BlackBoxLoop

KILLS = 40
LONGEST_LIFE = 0.5  # seconds at first; nothing depends on it but where the kills strike
SERIAL = SerialExecutor()  # starting processes takes longer than these tests should
GIVEN: dict[str, Any] = {
    "seeds": "0-7",
    "against": "many",
    "all": {"space": {"name": "nb201_mini"}, "strategy": {"name": "random_search"}},
    "entry": {"few": {"search": {"trials": 10}}, "many": {"search": {"trials": 60}}},
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of many runs take longer than the runs."""
    monkeypatch.setattr(api, "render_files", lambda result: {})


@pytest.fixture(scope="module")
def comparison() -> ComparisonSpec:
    return ComparisonSpec.resolve(GIVEN)


@pytest.fixture(scope="module")
def undisturbed(comparison: ComparisonSpec, tmp_path_factory: pytest.TempPathFactory) -> ComparisonResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "render_files", lambda result: {})
        return api.run_comparison(comparison, tmp_path_factory.mktemp("undisturbed") / "out", executor=SERIAL)


def scores_of(result: ComparisonResult, entry: str, seed: int) -> list[float]:
    """Return the scores of all trials of one run, from its folder."""
    assert result.folder is not None
    lines = (result.folder / "runs" / f"{entry}-{seed}" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["score"] for line in lines]


def describe(result: ComparisonResult) -> Any:
    """Return all of a result but the times, every trial included."""
    rows = [
        (
            row.name,
            [(r.seed, r.text, r.value, r.trainings, scores_of(result, row.name, r.seed)) for r in row.results],
        )
        for row in result.entries
    ]
    return rows, result.verdicts


def test_every_seed_is_another_search_and_the_table_is_whole(undisturbed: ComparisonResult) -> None:
    assert [len(row.results) for row in undisturbed.entries] == [8, 8]
    assert [row.results[0].trainings for row in undisturbed.entries] == [10, 60]
    first = {scores_of(undisturbed, row.name, r.seed)[0] for row in undisturbed.entries for r in row.results}
    assert len(first) > 4
    assert "at matched cost: the best of 10 trials in each seed of many" in undisturbed.verdicts["few"].sentence
    assert undisturbed.verdicts["few"].difference == 0.0  # a random search against the beginning of itself


def forked(work: Callable[[], None]) -> tuple[int, int]:
    """Do the work in a process that leads a group of its own; its number, and a pipe that is open while any lives."""
    reading, writing = os.pipe()
    leader = os.fork()
    if leader == 0:
        try:
            os.setpgid(0, 0)
            os.close(reading)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    with contextlib.suppress(OSError):  # whichever of the two comes first
        os.setpgid(leader, leader)
    os.close(writing)
    return leader, reading


def ended(leader: int, reading: int) -> bool:
    """Wait until every process of the group is gone; whether the first one came to its end by itself."""
    os.read(reading, 1)
    os.close(reading)
    return os.waitpid(leader, 0)[1] == 0


def test_killed_at_any_moment_no_finished_run_is_lost_or_run_twice(
    comparison: ComparisonSpec, undisturbed: ComparisonResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All processes at once, again and again. They are forked, since each would have to import torch otherwise."""
    monkeypatch.setattr(process_executor, "START", "fork")
    monkeypatch.setattr(BlackBoxLoop, "seconds_between_saves", 0.0)  # so that kills strike saving, and runs resume
    folder, rng = tmp_path / "out", random.Random(0)
    finished: dict[Path, tuple[int, int]] = {}
    kills = 0
    while kills < KILLS:
        leader, reading = forked(lambda: run_in_processes(comparison, folder))
        time.sleep(
            LONGEST_LIFE * (1 + kills / 8) * rng.random()
        )  # longer and longer: a busy machine finishes some, too
        os.killpg(leader, signal.SIGKILL)
        kills += 1
        if ended(leader, reading):
            break
        now = {job.folder: identity(job.run_folder) for job in comparison.jobs(folder) if job.state == "finished"}
        assert {path: now.get(path) for path in finished} == finished
        finished |= now
    leader, reading = forked(lambda: run_in_processes(comparison, folder))
    assert ended(leader, reading)
    assert kills > 3 and finished
    assert {path: identity(RunFolder(path)) for path in finished} == finished
    assert describe(api.run_comparison(comparison, folder, executor=NoneIsLeft())) == describe(undisturbed)


def run_in_processes(comparison: ComparisonSpec, folder: Path) -> None:
    api.run_comparison(comparison, folder, executor=ProcessExecutor(2))


def identity(run: RunFolder) -> tuple[int, int]:
    """Changes when a file is written anew, even with the same contents."""
    status = run.architecture_path.stat()
    return status.st_ino, status.st_mtime_ns


class NoneIsLeft(SerialExecutor):
    """Expects no job."""

    def run(self, jobs: Any, **options: Any) -> Any:
        assert list(jobs) == []
        return {}


def test_asked_to_stop_it_saves_and_resumes_later(
    comparison: ComparisonSpec, undisturbed: ComparisonResult, tmp_path: Path
) -> None:
    questions = iter(range(1000))
    with pytest.raises(Interrupted):
        api.run_comparison(comparison, tmp_path, executor=SERIAL, stop=lambda: next(questions) > 50)
    states = [job.state for job in comparison.jobs(tmp_path)]
    assert states.count("interrupted") == 1 and states.count("finished") > 1 and "not begun" in states
    assert describe(api.run_comparison(comparison, tmp_path, executor=SERIAL)) == describe(undisturbed)


def test_entries_can_be_run_by_themselves(comparison: ComparisonSpec, tmp_path: Path) -> None:
    result = api.run_comparison(comparison, tmp_path, executor=SERIAL, only=["few"])
    assert [len(row.results) for row in result.entries] == [8, 0]
    assert result.missing == 8


def test_two_do_not_work_in_one_folder(comparison: ComparisonSpec, tmp_path: Path) -> None:
    with RunFolder(tmp_path).lock(), pytest.raises(ArchloomError, match="in use by another process"):
        api.run_comparison(comparison, tmp_path, executor=SERIAL)


def test_the_traceback_of_an_unexpected_error_is_written_to_a_file(comparison: ComparisonSpec, tmp_path: Path) -> None:
    class Broken(SerialExecutor):
        def run(self, jobs: Any, *, emit: Any, **options: Any) -> Any:
            failure = Failure("OSError: full", details="Traceback: all of it")
            emit(JobEnded(jobs[0].name, failure=failure))
            return {jobs[0].name: failure}

    result = api.run_comparison(comparison, tmp_path, executor=Broken())
    assert result.failures == {"few-0": "OSError: full"}
    assert (tmp_path / "failures" / "few-0.txt").read_text() == "Traceback: all of it"


def test_one_call_with_settings_seeds_and_folder(tmp_path: Path) -> None:
    result = api.compare(GIVEN, out=tmp_path / "a", seeds="3", settings={"search": {"trials": 4}}, executor=SERIAL)
    assert [[(r.seed, r.trainings) for r in row.results] for row in result.entries] == [[(3, 4)], [(3, 4)]]
    again = api.compare(tmp_path / "a", executor=NoneIsLeft())
    assert describe(again) == describe(result)


def test_seeds_of_planned_searches_differ_and_their_folder_can_be_repeated(tmp_path: Path) -> None:
    """Small data: settings that were left out are planned by each run, which must keep its own seed."""
    given = {
        "seeds": "0-2",
        "all": {"space": {"name": "nb201_mini"}, "data": {"name": "digits"}, "network": {"channels": 4}},
        "entry": {"rsps": {"strategy": {"name": "rsps"}, "search": {"epochs": 1}, "race": {"contestants": 0}}},
    }
    comparison = ComparisonSpec.resolve(given)
    first = api.run_comparison(comparison, tmp_path / "out", executor=SERIAL)
    folders = [tmp_path / "out" / "runs" / f"rsps-{seed}" for seed in range(3)]
    assert [RunFolder(folder).config["seed"] for folder in folders] == [0, 1, 2]
    assert len({(folder / "metrics.jsonl").read_text().partition("train_loss")[2][:12] for folder in folders}) == 3
    again, folder = ComparisonSpec.open(tmp_path / "out", tmp_path)
    assert api.run_comparison(again, folder, executor=SERIAL).entries == first.entries
    changed = ComparisonSpec.resolve(given, overrides={"search": {"epochs": 2}})
    with pytest.raises(ArchloomError, match=r"search.epochs = 1, now it is 2"):
        api.run_comparison(changed, folder, executor=SERIAL)
