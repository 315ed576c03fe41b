"""One step of a search or a retraining in a process of its own: its times, and the memory beyond what was there before.

The other scripts call this one, with a task as JSON, so that no variant profits from what another has left in memory:

    python benchmarks/one_step.py '{"workload": {"space": "nb201", "strategy": "darts", "channels": 8, "batch": 64}}'
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch is loaded: threads that wait must not spin

import contextlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from archloom.core.registry import Entry
from archloom.execution.machine import keep_memory
from archloom.fast import KernelChoice, use_kernels
from archloom.latency.step_timing import Step, Workload, prepare_step, time_rounds
from retrain_step import RetrainWorkload

BESIDE, TUNED = "beside", "tuned"
VARIANTS = {  # kernels, whether channels are adjacent in memory, cells computed again, 3x3 convolutions in bfloat16
    "plain": {"choice": "plain", "channels_last": False},
    "torch": {"choice": "torch", "channels_last": True},
    "auto": {"choice": "auto", "channels_last": True},
    "again": {"choice": "auto", "channels_last": True, "recompute": True},
    "compile": {"choice": "compile", "channels_last": True},
    "bfloat16": {"choice": "auto", "channels_last": True, "mixed_precision": True},
}
RARE = ("compile", "bfloat16")  # timed only where they are named


@dataclass(frozen=True, kw_only=True)
class Task:
    """What to run: a variant of a workload, or an implementation from elsewhere (`module:function`)."""

    workload: Workload | RetrainWorkload
    variant: str = "auto"
    beside: str | None = None
    threads: int = 1
    rounds: int = 1
    warm_up: int = 1
    keep_memory: bool = True  # as a search does
    cpu_time: bool = False  # seconds of the processor instead of the clock: on a busy machine
    seed: int = 0

    @classmethod
    def from_json(cls, text: str) -> Task:
        given = json.loads(text)
        kind = RetrainWorkload if "architecture" in given["workload"] else Workload
        return cls(**{**given, "workload": kind(**given["workload"])})

    def step(self) -> Step:
        if self.beside is not None:
            return outside(self.beside)(self.workload, seed=self.seed)
        if isinstance(self.workload, RetrainWorkload):
            return self._retraining_step(self.workload, **VARIANTS[self.variant])
        return prepare_step(self.workload, **VARIANTS[self.variant], seed=self.seed)

    def _retraining_step(
        self, workload: RetrainWorkload, choice: KernelChoice, recompute: bool = False, **variant: bool
    ) -> Step:
        advance = workload.prepare_step(**variant, seed=self.seed)

        def step() -> object:
            with use_kernels(choice, recompute=recompute):
                return advance()

        return step


def outside(target: str) -> Callable[..., Step]:
    """The function that `module:function` names; the module may lie in the present folder."""
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    return Entry(target).load()


@dataclass(frozen=True)
class Alone:
    """What a step took in a process of its own."""

    seconds: list[float]
    peak_mb: float


def run_alone(task: Task) -> Alone:
    """Run a task in a fresh process."""
    command = [sys.executable, __file__, json.dumps(asdict(task))]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{task.variant} of {task.workload} ended with {ended.returncode}:\n{ended.stderr}")
    return Alone(**json.loads(ended.stdout.splitlines()[-1]))  # an outside implementation may print, too


def run_task(task: Task) -> Alone:
    """Here and now; the peak is that of this process."""
    torch.set_num_threads(task.threads)
    if task.keep_memory:
        keep_memory()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak of importing torch
    before = resident_mb("VmRSS")
    clock = time.process_time if task.cpu_time else time.perf_counter
    times = time_rounds({"": task.step()}, rounds=task.rounds, warm_up=task.warm_up, clock=clock)
    return Alone(times[""], resident_mb("VmHWM") - before)


def resident_mb(field: str) -> float:
    """Memory now (VmRSS) or at most (VmHWM).

    Where Linux' file is missing, the most is all there is to know. It is the second choice also because a new process
    inherits the peak of the one that started it.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 2**10


def main() -> None:
    print(json.dumps(asdict(run_task(Task.from_json(sys.argv[1])))))


if __name__ == "__main__":
    main()
