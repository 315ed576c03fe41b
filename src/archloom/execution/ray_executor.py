"""Jobs on a Ray cluster that the user started; this module never starts or stops one.

Tasks hold no references to each other: no actors, and no `ray.get` inside a task. So whatever machine is lost, only the
tasks on it are, and they run again elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from archloom.core.errors import ArchloomError, SettingError, one_line
from archloom.core.events import Failure, JobEnded
from archloom.execution.cluster import ClusterExecutor, Ended
from archloom.execution.exchange import RemoteCall, read_end
from archloom.execution.executors import Resources

SECONDS_TO_WAIT = 0.25  # for a task to end
GIGABYTE = 2**30
SLACK = 2  # tasks that wait beside those that run: a machine that becomes free has the next one at once
START_ONE = (
    "start a cluster with `ray start --head`, on other machines `ray start --address=HOST:6379`, and set RAY_ADDRESS="
    "HOST:6379 or use --on ray://HOST:10001; without a cluster leave --on out"
)


def find_address(on: str) -> str:
    """Return the address of the cluster that `--on ray://HOST:PORT` or RAY_ADDRESS names.

    Raises:
        SettingError: If none is named: this machine alone needs no cluster.
    """
    address = on if on.startswith("ray://") else os.environ.get("RAY_ADDRESS", "")
    if not address or address == "local":
        raise SettingError(f"--on ray needs a cluster that runs, and RAY_ADDRESS names none; {START_ONE}")
    return address


class RayExecutor(ClusterExecutor[Any]):
    """Runs jobs as tasks of a Ray cluster."""

    def __init__(self, address: str, place: Path, *, shared: Sequence[object] = (), most: int | None = None) -> None:
        super().__init__(place, shared=shared)
        self._address, self._most = address, most
        self._joined = False
        self._task: Any = None

    @property
    def workers(self) -> int:
        """Return the number the user chose, else the CPUs of the cluster now, and a few tasks that wait for one."""
        if self._most is not None:
            return self._most
        with self:
            return max(1, int(_ray().cluster_resources().get("CPU", 1))) + SLACK

    def _connect(self) -> None:
        ray = _ray()
        if not ray.is_initialized():
            try:
                ray.init(address=self._address, log_to_driver=False, logging_level="ERROR")
            except Exception as error:  # of many kinds, one for each way in which nobody answers
                raise ArchloomError(
                    f"no Ray cluster answers at {self._address} ({one_line(error)}); {START_ONE}"
                ) from error
            self._joined = True
        self._task = ray.remote(max_retries=0)(_run_call)

    def _disconnect(self) -> None:
        if self._joined:  # else it is the caller's connection
            _ray().shutdown()
            self._joined = False

    def _share(self, data: bytes) -> object:
        return _ray().put(data)

    def _submit(self, call: RemoteCall, shared: object, resources: Resources) -> Any:
        options: dict[str, Any] = {"num_cpus": resources.cpus, "num_gpus": resources.gpus, "name": call.name}
        if resources.memory_gb:
            options["memory"] = int(resources.memory_gb * GIGABYTE)
        return self._task.options(**options).remote(call, shared)

    def _wait(self, handles: Sequence[Any]) -> Iterator[Ended[Any]]:
        ray = _ray()
        done, _ = ray.wait(list(handles), num_returns=len(handles), timeout=SECONDS_TO_WAIT)
        for handle in done:
            yield Ended(handle, self._read(handle))

    def _read(self, handle: Any) -> JobEnded | None:
        """Return how a task ended; None if its machine was lost."""
        ray = _ray()
        try:
            return read_end(ray.get(handle))
        except (ray.exceptions.NodeDiedError, ray.exceptions.ObjectLostError):  # lost or preempted
            return None
        except ray.exceptions.WorkerCrashedError:
            return JobEnded("", failure=Failure("its process died on the cluster; was memory short?"))
        except ray.exceptions.RayError as error:
            return JobEnded("", failure=Failure(f"{type(error).__name__}: {one_line(error)}"))


def _run_call(call: RemoteCall, shared: bytes) -> bytes:
    """Run a job inside a task."""
    return call(shared)


def _ray() -> Any:
    try:
        import ray  # late: it is optional, and slow to import
    except ImportError as error:
        raise ArchloomError("--on ray needs Ray: pip install 'archloom[ray]'") from error
    return ray
