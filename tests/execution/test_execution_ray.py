"""Jobs on a Ray cluster of two nodes on this machine: lost nodes cost nothing, failures are retried once."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import ENVIRONMENT, LOOPBACK, Noting, list_strange_addresses, ray_cluster, wait_until

from archloom.core.errors import ArchloomError, SettingError
from archloom.core.events import JobEnded, JobProgressed
from archloom.execution.executors import Resources
from archloom.execution.places import make_executor
from archloom.execution.ray_executor import RayExecutor, find_address

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'archloom[ray]'")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER", False)  # read when Ray was imported
        with ray_cluster() as started:
            yield started
        ray.shutdown()


@pytest.fixture
def executor(cluster: Any, tmp_path: Path) -> RayExecutor:
    return RayExecutor(cluster.address, tmp_path)


def test_all_traffic_is_on_loopback(cluster: Any, executor: RayExecutor, tmp_path: Path) -> None:
    assert cluster.address.startswith(f"{LOOPBACK}:")
    with executor:
        assert {node["NodeManagerAddress"] for node in ray.nodes()} == {LOOPBACK}
        executor.run([Noting("a", tmp_path)])
        started = {
            info.process.pid
            for node in cluster.list_all_nodes()
            for infos in node.all_processes.values()
            for info in infos
        }
        assert len(started) >= 3  # the store of the cluster, and two nodes
        assert list_strange_addresses(started | {os.getpid(), int(Noting("a", tmp_path).lines[0])}) == set()


def test_results_failures_and_retries(executor: RayExecutor, tmp_path: Path) -> None:
    jobs = [
        Noting("a", tmp_path),
        Noting("b", tmp_path, "refuse"),
        Noting("c", tmp_path, "die once"),
        Noting("d", tmp_path, "die"),
        Noting("e", tmp_path, resources=Resources(cpus=1, memory_gb=0.01)),
    ]
    events: list[Any] = []
    failures = executor.run(jobs, emit=events.append)
    assert {name: one.message for name, one in failures.items()} == {
        "b": "ValueError: no such thing",
        "d": "its process died on the cluster; was memory short?",
    }
    assert {job.name: len(job.lines) for job in jobs} == {"a": 1, "b": 2, "c": 2, "d": 2, "e": 1}
    results = {event.job: event.result for event in events if isinstance(event, JobEnded) and event.result}
    assert results == {"a": "A", "c": "C", "e": "E"}
    assert not list(tmp_path.glob(".exchange-*"))


def test_ray_reserves_what_each_job_needs(executor: RayExecutor, tmp_path: Path) -> None:
    needs = {"a": Resources(), "b": Resources(gpus=1, memory_gb=0.25), "c": Resources(memory_gb=0.5)}
    jobs = [Noting(name, tmp_path, "list resources", resources) for name, resources in needs.items()]
    events: list[Any] = []
    assert executor.run(jobs, emit=events.append) == {}
    found = {event.job: json.loads(event.result) for event in events if isinstance(event, JobEnded)}
    assert found == {
        "a": {"CPU": 1.0},
        "b": {"CPU": 1.0, "GPU": 1.0, "memory": 0.25 * 2**30},
        "c": {"CPU": 1.0, "memory": 0.5 * 2**30},
    }


def test_progress_and_the_request_to_stop_pass_through_files(executor: RayExecutor, tmp_path: Path) -> None:
    jobs = [Noting("a", tmp_path, "wait"), Noting("b", tmp_path, "wait")]
    events: list[Any] = []
    seen = lambda: sum(isinstance(event, JobProgressed) for event in events) == 2  # noqa: E731
    assert executor.run(jobs, emit=events.append, stop=seen) == {}
    assert {event.job: event.stopped for event in events if isinstance(event, JobEnded)} == {"a": True, "b": True}


def test_shared_values_are_sent_once(cluster: Any, tmp_path: Path) -> None:
    folder = tmp_path / "big"
    folder.mkdir()
    executor = RayExecutor(cluster.address, tmp_path, shared=[folder])
    assert executor.run([Noting("a", folder), Noting("b", folder)]) == {}
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]


def test_a_node_that_is_lost_is_no_failure_of_its_jobs(cluster: Any, executor: RayExecutor, tmp_path: Path) -> None:
    jobs = [Noting(name, tmp_path, "wait for go") for name in "abcd"]
    lost = cluster.worker_nodes.copy().pop()

    def kill_one() -> None:
        wait_until(lambda: sum(bool(job.lines) for job in jobs) == 2)
        cluster.remove_node(lost, allow_graceful=False)
        (tmp_path / "go").touch()

    thread = threading.Thread(target=kill_one)
    thread.start()
    events: list[Any] = []
    try:
        assert executor.run(jobs, emit=events.append) == {}
    finally:
        thread.join()
    ended = [event for event in events if isinstance(event, JobEnded)]
    assert sorted(event.job for event in ended if event.result) == list("abcd")
    assert [event.failure for event in ended] == [None] * len(ended)
    assert sum(event.retrying for event in ended) == 1
    assert sorted(len(job.lines) for job in jobs) == [1, 1, 1, 2]


def test_without_a_cluster_nothing_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(SettingError, match=r"RAY_ADDRESS names none; start a cluster with `ray start --head`"):
        make_executor("ray", workers=lambda: 1, place=tmp_path)
    assert not ray.is_initialized()
    monkeypatch.setenv("RAY_ADDRESS", "10.1.2.3:6379")
    assert find_address("ray") == "10.1.2.3:6379"
    assert find_address("ray://head:10001") == "ray://head:10001"
    with pytest.raises(SettingError, match="--on must be processes, serial, ray"):
        make_executor("cloud", workers=lambda: 1, place=tmp_path)


def test_a_cluster_that_does_not_answer_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise ConnectionError("nobody\nthere")

    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(ArchloomError, match=r"^no Ray cluster answers at 127.0.0.1:1 \(nobody there\); start"):
        RayExecutor("127.0.0.1:1", tmp_path).run([Noting("a", tmp_path)])
