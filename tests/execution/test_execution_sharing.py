"""Processes that share a folder run every job once, and one that dies is replaced by the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from archloom.comparisons import run as comparison_run
from archloom.comparisons.results import ComparisonResult
from archloom.comparisons.spec import ComparisonSpec
from archloom.core.events import JobEnded, JobStarted
from archloom.core.leases import LeaseHeldError, hold_lease
from archloom.execution.executors import SerialExecutor
from archloom.execution.run_folder import RunFolder
from archloom.execution.sharing import SharingExecutor

GIVEN: dict[str, Any] = {
    "seeds": "0-3",
    "against": "random",
    "all": {"space": {"name": "nb201_mini"}, "data": {"name": "digits"}, "network": {"channels": 4}},
    "entry": {
        "random": {"strategy": {"name": "random_search"}, "search": {"trials": 30}},
        "rsps": {
            "seeds": "0-1",
            "strategy": {"name": "rsps"},
            "search": {"epochs": 2, "random_baseline_samples": 2, "evaluation_images": 50},
            "race": {"contestants": 0},
        },
    },
}
JOIN = """
import sys
from archloom.comparisons.run import compare
from archloom.execution.executors import SerialExecutor
compare(sys.argv[1], out=sys.argv[1], executor=SerialExecutor(), join=True)
"""


@pytest.fixture(scope="module")
def comparison() -> ComparisonSpec:
    return ComparisonSpec.resolve(GIVEN)


def figures(result: ComparisonResult) -> Any:
    return [[(one.seed, one.text, one.value) for one in entry.results] for entry in result.entries]


def attempts(folder: Path) -> int:
    """Return how often a run folder was taken: twice for a run that was begun and never resumed."""
    (lease,) = folder.glob(".lease-*")
    return int(lease.name.rpartition("-")[2])


def test_three_processes_share_a_comparison_and_one_is_killed(comparison: ComparisonSpec, tmp_path: Path) -> None:
    alone = comparison_run.run_comparison(comparison, tmp_path / "alone", executor=SerialExecutor())
    folder = tmp_path / "together"
    with RunFolder(folder).lock():
        comparison.write(folder)
    processes = [subprocess.Popen([sys.executable, "-c", JOIN, str(folder)]) for _ in range(3)]
    try:
        end = time.monotonic() + 120
        while not any(folder.glob("runs/rsps-*/config.toml")):
            assert time.monotonic() < end, "no search began"
            time.sleep(0.02)
        processes[0].send_signal(signal.SIGKILL)
        assert [process.wait(timeout=240) for process in processes] == [-signal.SIGKILL, 0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    together = ComparisonResult.read(folder)
    assert figures(together) == figures(alone)
    counts = [attempts(path) for path in (folder / "runs").iterdir()]
    assert len(counts) == 6
    assert sum(count > 2 for count in counts) <= 1  # only what the killed process ran was taken twice


def test_a_job_that_another_process_runs_is_waited_for(comparison: ComparisonSpec, tmp_path: Path) -> None:
    jobs = [job for job in comparison.jobs(tmp_path) if job.entry == "random"][:2]
    events: list[Any] = []
    held = hold_lease(jobs[0].folder)
    jobs[0].folder.mkdir(parents=True)
    held.__enter__()
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        assert jobs[1].state == "finished"
        pauses.append(seconds)
        held.__exit__(None, None, None)

    assert SharingExecutor(SerialExecutor(), sleep=sleep).run(jobs, emit=events.append) == {}
    assert len(pauses) == 1
    assert [job.state for job in jobs] == ["finished", "finished"]
    started = [event.job for event in events if isinstance(event, JobStarted)]
    assert started == [jobs[1].name, jobs[0].name]
    assert [event.job for event in events if isinstance(event, JobEnded)] == started


def test_a_job_that_another_process_finished_is_reported_once(comparison: ComparisonSpec, tmp_path: Path) -> None:
    (job, other) = [job for job in comparison.jobs(tmp_path) if job.entry == "random"][:2]
    SerialExecutor().run([job])
    events: list[Any] = []
    assert SharingExecutor(SerialExecutor()).run([job, other], emit=events.append) == {}
    assert sorted(event.job for event in events if isinstance(event, JobEnded)) == [job.name, other.name]
    assert [event.job for event in events if isinstance(event, JobStarted)] == [other.name]


def test_a_process_that_runs_a_comparison_alone_cannot_be_joined(
    comparison: ComparisonSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison_run, "JOIN_PATIENCE", 0.0)
    with RunFolder(tmp_path).lock(), pytest.raises(LeaseHeldError, match=f"pid {os.getpid()}"):
        comparison_run.run_comparison(comparison, tmp_path, executor=SerialExecutor(), join=True)


def test_a_failing_job_is_retried_once_and_the_others_go_on(
    comparison: ComparisonSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [job for job in comparison.jobs(tmp_path) if job.entry == "random"][:2]
    kind, tries, run = type(jobs[0]), [], type(jobs[0]).run

    def break_first(self: Any, emit: Any, stop: Any) -> None:
        tries.append(self.name)
        if self.name == jobs[0].name:
            raise RuntimeError("broken")
        run(self, emit, stop)

    monkeypatch.setattr(kind, "run", break_first)
    failures = SharingExecutor(SerialExecutor()).run(jobs)
    assert {name: one.message for name, one in failures.items()} == {jobs[0].name: "RuntimeError: broken"}
    assert tries.count(jobs[0].name) == 2
    assert jobs[1].state == "finished"
