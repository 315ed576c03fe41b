"""Jobs of a SLURM cluster, through submitit; a job that is preempted or runs out of time is queued again.

Options of sbatch beside CPUs, GPUs and memory come from its own variables: SBATCH_PARTITION, SBATCH_TIMELIMIT, ...
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from archloom.core.errors import ArchloomError, one_line
from archloom.core.events import Failure, JobEnded
from archloom.execution.cluster import ClusterExecutor, Ended
from archloom.execution.exchange import RemoteCall, read_end
from archloom.execution.executors import Resources

FOLDER = "slurm"  # of scripts and logs
SECONDS_TO_WAIT = 0.5
MINUTES = 24 * 60  # of a job, unless SBATCH_TIMELIMIT says otherwise
MOST_TIMEOUTS = 1000  # after each of which a job is queued again
MOST_JOBS = 64  # in the queue of the cluster at the same time
LOST = ("NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REVOKED")  # states of a job that lost its machine


@dataclass(frozen=True)
class SlurmCall:
    """What submitit runs: a call that can be queued again, since all that it saves is in the run folder."""

    call: RemoteCall
    shared: bytes

    def __call__(self) -> bytes:
        """Run the job, or resume it."""
        return self.call(self.shared)

    def checkpoint(self) -> Any:
        """Return what is queued in the place of this call when it is preempted or its time is over."""
        from submitit.helpers import DelayedSubmission  # late: it is optional

        return DelayedSubmission(self)


class SlurmExecutor(ClusterExecutor[Any]):
    """Runs jobs as jobs of SLURM; `cluster` is for tests, which have none."""

    def __init__(
        self,
        place: Path,
        *,
        shared: Sequence[object] = (),
        workers: int | None = None,
        cluster: str = "slurm",
    ) -> None:
        super().__init__(place, shared=shared)
        self._most, self._cluster = workers or MOST_JOBS, cluster
        self._engine: Any = None

    @property
    def workers(self) -> int:
        """Return how many jobs are in the queue of the cluster at the same time."""
        return self._most

    def _connect(self) -> None:
        submitit = _submitit()
        try:
            self._engine = submitit.AutoExecutor(
                folder=self._place.absolute() / FOLDER, cluster=self._cluster, slurm_max_num_timeout=MOST_TIMEOUTS
            )
        except Exception as error:  # submitit's own, where sbatch is missing
            raise ArchloomError(
                f"--on slurm needs a machine from which sbatch can be called ({one_line(error)}); without SLURM leave "
                "--on out"
            ) from error

    def _disconnect(self) -> None:
        self._engine = None

    def _share(self, data: bytes) -> object:
        return data

    def _submit(self, call: RemoteCall, shared: object, resources: Resources) -> Any:
        assert isinstance(shared, bytes)
        options: dict[str, Any] = {"name": "archloom", "timeout_min": MINUTES, "cpus_per_task": resources.cpus}
        if resources.gpus:
            options["gpus_per_node"] = resources.gpus
        if resources.memory_gb:
            options["mem_gb"] = resources.memory_gb
        self._engine.update_parameters(**options)
        return self._engine.submit(SlurmCall(call, shared))

    def _wait(self, handles: Sequence[Any]) -> Iterator[Ended[Any]]:
        ended = [handle for handle in handles if handle.done()]
        if not ended:
            time.sleep(SECONDS_TO_WAIT)
        for handle in ended:
            yield Ended(handle, _read(handle))


def _read(handle: Any) -> JobEnded | None:
    """Return how a job ended; None if its machine was lost."""
    submitit = _submitit()
    try:
        return read_end(handle.result())
    except (submitit.core.utils.UncompletedJobError, submitit.core.utils.FailedJobError) as error:
        if handle.state in LOST:
            return None
        return JobEnded("", failure=Failure(one_line(error), str(error)))


def _submitit() -> Any:
    try:
        import submitit  # late: it is optional
    except ImportError as error:
        raise ArchloomError("--on slurm needs submitit: pip install 'archloom[slurm]'") from error
    return submitit
