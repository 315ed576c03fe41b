"""Jobs and a two-node Ray cluster for tests: all of its traffic stays on the loopback device."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle

from archloom.core.events import JobProgressed
from archloom.execution.executors import Resources
from archloom.execution.loop import Interrupted

LOOPBACK = "127.0.0.1"
DEADLINE = 240.0  # far more than anything here takes: only what hangs is given up
ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else Ray replaces 127.0.0.1 by the machine's own address
    "RAY_USAGE_STATS_ENABLED": "0",
}


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # other processes cannot import it


@dataclass(frozen=True)
class Noting:
    """A job that notes where it runs, and then does what `then` says."""

    name: str
    folder: Path
    then: str = ""
    resources: Resources = field(default_factory=Resources)

    @property
    def lines(self) -> list[str]:
        path = self.folder / self.name
        return path.read_text().split() if path.exists() else []

    def run(self, emit: Callable[[Any], None], stop: Callable[[], bool]) -> str:
        with (self.folder / self.name).open("a") as file:
            file.write(f"{os.getpid()}\n")
        emit(JobProgressed(self.name, 0.5))
        if self.then == "wait":
            wait_until(stop)
            raise Interrupted
        if self.then == "wait for go":
            wait_until((self.folder / "go").exists)
        if self.then == "list resources":
            import ray

            return json.dumps(ray.get_runtime_context().get_assigned_resources())
        if self.then == "refuse":
            raise ValueError("no such thing")
        if self.then == "die" or (self.then == "die once" and len(self.lines) == 1):
            os.kill(os.getpid(), signal.SIGKILL)
        return self.name.upper()


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end, "gave up waiting"
        time.sleep(0.05)


@contextmanager
def ray_cluster() -> Iterator[Any]:
    """Give a cluster of two nodes with a CPU and a pretended GPU each; every process of it ends with the context."""
    from ray.cluster_utils import Cluster

    node = {
        "num_cpus": 1,
        "num_gpus": 1,
        "node_ip_address": LOOPBACK,
        "include_dashboard": False,
        "object_store_memory": 80 * 2**20,
    }
    cluster = Cluster(initialize_head=True, head_node_args=node)
    try:
        cluster.add_node(**{name: value for name, value in node.items() if name != "include_dashboard"})
        cluster.wait_for_nodes()
        yield cluster
    finally:
        cluster.shutdown()


def list_strange_addresses(processes: set[int]) -> set[str]:
    """Return the addresses beside loopback that sockets of these processes listen on or are connected to."""
    inodes = {
        _target(link)[8:-1]
        for process in processes
        for link in Path(f"/proc/{process}/fd").iterdir()
        if link.is_symlink() and _target(link).startswith("socket:[")
    }
    strange = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[9] in inodes:
            strange |= {_address(end) for end in fields[1:3]}
    return strange - {LOOPBACK, "0.0.0.0"}  # 0.0.0.0 as the far end of a socket that listens


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def _address(text: str) -> str:
    number = bytes.fromhex(text.partition(":")[0])
    return ".".join(str(part) for part in reversed(number))
