"""Jobs through submitit, whose local executor stands in for SLURM."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from clusters import Noting, wait_until

from archloom.comparisons.run import compare
from archloom.core.errors import ArchloomError
from archloom.core.events import JobEnded, JobProgressed
from archloom.core.leases import find_holder
from archloom.execution import slurm_executor
from archloom.execution.exchange import Exchange, RemoteCall, read_end
from archloom.execution.executors import Resources, SerialExecutor
from archloom.execution.pickling import dump
from archloom.execution.slurm_executor import SlurmCall, SlurmExecutor
from archloom.searches.jobs import SearchJob
from archloom.searches.spec import SearchSpec

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
    assert list((tmp_path / "slurm").glob("*/*_log.out"))
    assert not list(tmp_path.glob(".exchange-*"))


def test_progress_and_the_request_to_stop_pass_through_files(executor: SlurmExecutor, tmp_path: Path) -> None:
    jobs = [Noting("a", tmp_path, "wait"), Noting("b", tmp_path, "wait"), Noting("c", tmp_path)]
    events: list[Any] = []
    seen = lambda: sum(isinstance(event, JobProgressed) for event in events) == 2  # noqa: E731
    assert executor.run(jobs, emit=events.append, stop=seen) == {}
    assert {event.job: event.stopped for event in events if isinstance(event, JobEnded)} == {"a": True, "b": True}
    assert not jobs[2].lines


def test_a_preempted_job_that_cannot_stop_is_queued_again(tmp_path: Path) -> None:
    """submitit's signal of preemption makes it queue what `checkpoint` returns, once the time to save is over."""
    executor = SlurmExecutor(tmp_path, cluster="local", seconds_to_save=0.1)
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


@pytest.mark.parametrize(("minutes", "case"), [(24 * 60, "preempted"), (10, "timed-out")])
def test_a_search_whose_time_is_over_saves_and_ends_as_an_unbroken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: int, case: str
) -> None:
    """The search has one record, at its end: the only checkpoint before is that of the signal."""
    monkeypatch.setattr(slurm_executor, "MINUTES", minutes)  # submitit takes all but 10 minutes for guaranteed
    whole, broken = make_search(tmp_path / "whole"), make_search(tmp_path / "broken")
    assert SerialExecutor().run([whole]) == {}

    def end_time() -> None:
        wait_until((broken.folder / "metrics.jsonl").exists)  # it is written when the first step begins
        holder = find_holder(broken.folder)
        assert holder is not None
        os.kill(holder.process, signal.SIGUSR2)

    thread = threading.Thread(target=end_time)
    thread.start()
    events: list[Any] = []
    try:
        assert SlurmExecutor(tmp_path, cluster="local").run([broken], emit=events.append) == {}
    finally:
        thread.join()
    assert [(event.failure, event.retrying) for event in events if isinstance(event, JobEnded)] == [(None, False)]
    assert read_end_of_search(broken.folder) == read_end_of_search(whole.folder)
    steps = [sorted(int(path.stem.partition("-")[2]) for path in checkpoints(job.folder)) for job in (whole, broken)]
    assert steps[0] == steps[1][1:] and 0 < steps[1][0] < steps[0][0]
    (lease,) = broken.folder.glob(".lease-*")
    assert lease.name == ".lease-3"  # begun, run, and resumed once
    (log,) = (tmp_path / "slurm").glob("*/*_log.err")
    assert f"this job is {case}" in log.read_text()


def make_search(folder: Path) -> SearchJob:
    given = {
        "seed": 0,
        "space": {"name": "nb201_mini"},
        "strategy": {"name": "gdas"},
        "data": {"name": "digits"},
        "network": {"channels": 2},
        "search": {"epochs": 1, "batch_size": 8, "random_baseline_samples": 2, "evaluation_images": 50},
        "race": {"contestants": 0},
        "machine": {"torch_threads": 1},
    }
    return SearchJob("gdas", 0, SearchSpec.resolve(given), folder)


def checkpoints(folder: Path) -> list[Path]:
    return list((folder / "checkpoints").glob("*.safetensors"))


def read_end_of_search(folder: Path) -> Any:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((folder / "architecture.json").read_text())
    figures = [(line["metrics"], line["probabilities"], line["derived_score"], line["text"]) for line in lines]
    return figures, result["text"], result["random_baseline"]


SBATCH = """#!/bin/sh
cp "$1" "$ARCHLOOM_SCRIPTS/$(ls "$ARCHLOOM_SCRIPTS" | wc -l)"
echo "Submitted batch job $(ls "$ARCHLOOM_SCRIPTS" | wc -l)"
"""


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that gets a copy of every script: an `sbatch` of the test takes them, and runs none."""
    programs, found = tmp_path / "programs", tmp_path / "scripts"
    programs.mkdir()
    found.mkdir()
    for name in ("sbatch", "srun"):
        (programs / name).write_text(SBATCH)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("ARCHLOOM_SCRIPTS", str(found))
    return found


def read_options(script: Path) -> dict[str, str]:
    """Return the options of sbatch that a script states about resources."""
    lines = [line.removeprefix("#SBATCH --") for line in script.read_text().splitlines() if line.startswith("#SBATCH")]
    options = dict(line.split("=", 1) for line in lines if "=" in line)
    return {name: value for name, value in options.items() if name in ("cpus-per-task", "gpus-per-node", "mem")}


def test_sbatch_gets_what_each_job_needs(tmp_path: Path, scripts: Path) -> None:
    """Needs of one job are not those of the next."""
    executor, call = SlurmExecutor(tmp_path), RemoteCall("a", 0, b"", Exchange(tmp_path))
    needs = [Resources(cpus=4, gpus=1, memory_gb=8), Resources(cpus=2), Resources(cpus=1, memory_gb=0.5)]
    with executor:
        for resources in needs:
            executor._submit(call, b"", resources)
    assert [read_options(path) for path in sorted(scripts.iterdir())] == [
        {"cpus-per-task": "4", "gpus-per-node": "1", "mem": "8GB"},
        {"cpus-per-task": "2"},
        {"cpus-per-task": "1", "mem": "512MB"},
    ]


@pytest.mark.parametrize("join", [False, True])
def test_resources_of_a_comparison_reach_sbatch(tmp_path: Path, scripts: Path, join: bool) -> None:
    """They are those of its entries, on a machine that has no such GPU, also where searches are shared."""
    given = {
        "seeds": "0",
        "against": "small",
        "all": {"space": {"name": "nb201_mini"}, "data": {"name": "digits"}, "strategy": {"name": "random_search"}},
        "entry": {
            "small": {"machine": {"torch_threads": 2}},
            "large": {"machine": {"torch_threads": 4, "device": "cuda", "memory": 8}},
        },
    }
    wanted = {"large-0": {"cpus-per-task": "4", "gpus-per-node": "1", "mem": "8GB"}, "small-0": {"cpus-per-task": "2"}}

    class EnoughError(Exception):
        """Both jobs are submitted; no cluster would run them."""

    def stop() -> bool:
        if len(list(scripts.iterdir())) == 2:
            raise EnoughError
        return False

    with pytest.raises(EnoughError):
        compare(given, out=tmp_path / "compare", on="slurm", join=join, stop=stop)
    found = [read_options(path) for path in scripts.iterdir()]
    assert len(found) == 2 and all(options in found for options in wanted.values())


def test_a_machine_without_sbatch_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ArchloomError, match="--on slurm needs a machine from which sbatch can be called"):
        SlurmExecutor(tmp_path).run([Noting("a", tmp_path)])


def test_the_folder_of_a_driver_that_waits_is_not_a_leftover(tmp_path: Path) -> None:
    """Several drivers may share a place; jobs in a queue write nothing for hours."""
    dead, waiting = Exchange.create(tmp_path), Exchange.create(tmp_path)
    for exchange in (dead, waiting):
        os.utime(exchange.folder, (1.0, 1.0))
    waiting.refresh()
    Exchange.create(tmp_path)
    assert (dead.folder.exists(), waiting.folder.exists()) == (False, True)


def test_a_folder_that_holds_pickles_already_cannot_pass_them_for_results(tmp_path: Path) -> None:
    folders = [SlurmExecutor(tmp_path, cluster="local")._make_engine(Resources()).folder for _ in range(2)]
    assert folders[0] != folders[1] and all(folder.parent == tmp_path / "slurm" for folder in folders)
    assert not any(folder.exists() and list(folder.iterdir()) for folder in folders)
