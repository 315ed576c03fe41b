"""Jobs through submitit, whose local executor stands in for SLURM."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from clusters import Noting, wait_until

from archloom.core.errors import ArchloomError
from archloom.core.events import JobEnded, JobProgressed
from archloom.execution.exchange import Exchange, RemoteCall, read_end
from archloom.execution.executors import Resources, dump
from archloom.execution.slurm_executor import SlurmCall, SlurmExecutor

submitit = pytest.importorskip("submitit", reason="submitit is not installed: pip install 'archloom[slurm]'")


@pytest.fixture
def executor(tmp_path: Path) -> SlurmExecutor:
    return SlurmExecutor(tmp_path, cluster="local", workers=2)


def test_results_failures_and_retries(executor: SlurmExecutor, tmp_path: Path) -> None:
    jobs = [Noting("a", tmp_path), Noting("b", tmp_path, "refuse"), Noting("c", tmp_path)]
    events: list[Any] = []
    failures = executor.run(jobs, emit=events.append)
    assert {name: one.message for name, one in failures.items()} == {"b": "ValueError: no such thing"}
    assert {job.name: len(job.lines) for job in jobs} == {"a": 1, "b": 2, "c": 1}
    results = {event.job: event.result for event in events if isinstance(event, JobEnded) and event.result}
    assert results == {"a": "A", "c": "C"}
    assert list((tmp_path / "slurm").glob("*_log.out"))
    assert not list(tmp_path.glob(".exchange-*"))


def test_progress_and_the_request_to_stop_pass_through_files(executor: SlurmExecutor, tmp_path: Path) -> None:
    jobs = [Noting("a", tmp_path, "wait"), Noting("b", tmp_path, "wait"), Noting("c", tmp_path)]
    events: list[Any] = []
    seen = lambda: sum(isinstance(event, JobProgressed) for event in events) == 2  # noqa: E731
    assert executor.run(jobs, emit=events.append, stop=seen) == {}
    assert {event.job: event.stopped for event in events if isinstance(event, JobEnded)} == {"a": True, "b": True}
    assert not jobs[2].lines


def test_a_preempted_job_is_queued_again(executor: SlurmExecutor, tmp_path: Path) -> None:
    """submitit's signal of preemption makes it queue what `checkpoint` returns."""
    job, handles = Noting("a", tmp_path, "wait for go"), []
    submit = executor._submit

    def keep(*arguments: Any) -> Any:
        handles.append(submit(*arguments))
        return handles[-1]

    executor._submit = keep  # type: ignore[method-assign]

    def preempt() -> None:
        wait_until(lambda: len(job.lines) == 1)
        os.kill(int(job.lines[0]), signal.SIGUSR2)  # as SLURM does for submitit, before it takes the machine away
        wait_until(lambda: len(job.lines) == 2)
        (tmp_path / "go").touch()

    thread = threading.Thread(target=preempt)
    thread.start()
    events: list[Any] = []
    try:
        assert executor.run([job], emit=events.append) == {}
    finally:
        thread.join()
    assert [(event.result, event.failure) for event in events if isinstance(event, JobEnded)] == [("A", None)]
    assert len(handles) == 1  # the engine queued it, not the driver


def test_a_call_can_be_queued_again(tmp_path: Path) -> None:
    exchange = Exchange.create(tmp_path)
    call = SlurmCall(RemoteCall("a", 0, dump(Noting("a", tmp_path)), exchange), dump(()))
    delayed = call.checkpoint()
    assert delayed.function is call
    assert read_end(delayed.function()) == JobEnded("a", "A")
    assert exchange.read_share(0) == 0.5
    assert exchange.read_share(1) is None


def test_sbatch_is_told_what_a_job_needs(tmp_path: Path) -> None:
    executor, options_seen = SlurmExecutor(tmp_path), []

    class Engine:
        def update_parameters(self, **options: Any) -> None:
            options_seen.append(options)

        def submit(self, call: SlurmCall) -> str:
            return call.call.name

    executor._engine = Engine()
    call = RemoteCall("a", 0, b"", Exchange(tmp_path))
    assert executor._submit(call, b"", Resources(cpus=4, gpus=1, memory_gb=8)) == "a"
    (options,) = options_seen
    assert {name: options[name] for name in ("cpus_per_task", "gpus_per_node", "mem_gb")} == {
        "cpus_per_task": 4,
        "gpus_per_node": 1,
        "mem_gb": 8,
    }


def test_a_machine_without_sbatch_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ArchloomError, match="--on slurm needs a machine from which sbatch can be called"):
        SlurmExecutor(tmp_path).run([Noting("a", tmp_path)])
