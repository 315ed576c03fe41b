"""Jobs of a SLURM cluster, through submitit; a job that is preempted or runs out of time saves and is queued again.

Options of sbatch beside CPUs, GPUs and memory come from its own variables: SBATCH_PARTITION, SBATCH_TIMELIMIT, ...
"""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from archloom.core.errors import ArchloomError, one_line
from archloom.core.events import Failure, JobEnded
from archloom.execution.cluster import ClusterExecutor, Ended
from archloom.execution.exchange import RemoteCall, read_end
from archloom.execution.executors import Resources

FOLDER = "slurm"  # of scripts and logs
SECONDS_TO_WAIT = 0.5
SECONDS_TO_SAVE = 60.0  # after the signal; SLURM ends the job 90 s after it
MINUTES = 24 * 60  # of a job, unless SBATCH_TIMELIMIT says otherwise
MOST_TIMEOUTS = 1000  # after each of which a job is queued again
MOST_JOBS = 64  # in the queue of the cluster at the same time
LOST = ("NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REVOKED")  # states of a job that lost its machine


@dataclass(frozen=True)
class SlurmCall:
    """What submitit runs: a call that can be queued again, since all that it saves is in the run folder."""

    call: RemoteCall
    shared: bytes
    seconds_to_save: float = SECONDS_TO_SAVE

    def __call__(self) -> bytes:
        """Run the job, or resume it; the signal that its time is over saves it, and then has it queued again."""
        ending = _EndingSignal(self.seconds_to_save)
        with ending.hold_back():
            ended = self.call(self.shared, ending)
        if ending() and read_end(ended).stopped and not self.call.exchange.is_stopping:
            ending.pass_on()
        return ended

    def checkpoint(self) -> Any:
        """Return what is queued in the place of this call when it is preempted or its time is over."""
        from submitit.helpers import DelayedSubmission  # late: it is optional

        return DelayedSubmission(self)


class _EndingSignal:
    """Whether submitit's signal came: the job is preempted, or its time is over.

    The handler of submitit ends the process at once. So it is called once the job has saved, or when the time for that
    is over.
    """

    def __init__(self, seconds_to_save: float) -> None:
        self._seconds = seconds_to_save
        self._number = signal.Signals[f"SIG{_submitit().JobEnvironment.USR_SIG}"]
        self._handler = signal.getsignal(self._number)
        self._alarm = signal.getsignal(signal.SIGALRM)
        self._came = False

    def __call__(self) -> bool:
        return self._came

    @contextmanager
    def hold_back(self) -> Iterator[None]:
        """Keep the signal from submitit."""
        signal.signal(self._number, self._receive)
        signal.signal(signal.SIGALRM, lambda number, frame: self.pass_on())
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, self._alarm)
            signal.signal(self._number, self._handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def pass_on(self) -> None:
        """Let submitit queue the job again and end the process."""
        if callable(self._handler):
            self._handler(self._number, None)


class SlurmExecutor(ClusterExecutor[Any]):
    """Runs jobs as jobs of SLURM; `cluster` is for tests, which have none."""

    def __init__(
        self,
        place: Path,
        *,
        shared: Sequence[object] = (),
        workers: int | None = None,
        cluster: str = "slurm",
        seconds_to_save: float = SECONDS_TO_SAVE,
    ) -> None:
        super().__init__(place, shared=shared)
        self._most, self._cluster, self._seconds_to_save = workers or MOST_JOBS, cluster, seconds_to_save
        self._engines: dict[Resources, Any] = {}
        # results of jobs are unpickled, so no file that was here before may pass for one
        self._logs = place.absolute() / FOLDER / secrets.token_hex(6)

    @property
    def workers(self) -> int:
        """Return how many jobs are in the queue of the cluster at the same time."""
        return self._most

    def _connect(self) -> None:
        self._find_engine(Resources())

    def _disconnect(self) -> None:
        self._engines.clear()

    def _find_engine(self, resources: Resources) -> Any:
        """Return what submits jobs with these needs; each needs its own: options of submitit stay set."""
        if resources not in self._engines:
            self._engines[resources] = self._make_engine(resources)
        return self._engines[resources]

    def _make_engine(self, resources: Resources) -> Any:
        submitit = _submitit()
        try:
            engine = submitit.AutoExecutor(
                folder=self._logs, cluster=self._cluster, slurm_max_num_timeout=MOST_TIMEOUTS
            )
        except Exception as error:  # submitit's own, where sbatch is missing
            raise ArchloomError(
                f"--on slurm needs a machine from which sbatch can be called ({one_line(error)}); without SLURM leave "
                "--on out"
            ) from error
        engine.update_parameters(name="archloom", timeout_min=MINUTES, cpus_per_task=resources.cpus)
        if resources.gpus:
            engine.update_parameters(gpus_per_node=resources.gpus)
        if resources.memory_gb:
            engine.update_parameters(mem_gb=resources.memory_gb)
        return engine

    def _share(self, data: bytes) -> object:
        return data

    def _submit(self, call: RemoteCall, shared: object, resources: Resources) -> Any:
        assert isinstance(shared, bytes)
        return self._find_engine(resources).submit(SlurmCall(call, shared, self._seconds_to_save))

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
