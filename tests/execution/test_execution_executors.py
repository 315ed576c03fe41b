"""Executors: which process runs which job, what happens to failures, and how workers end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from archloom.core.errors import ArchloomError
from archloom.core.events import Advanced, Failure, JobEnded, JobProgressed, JobStarted, Started
from archloom.core.stop_signals import STOP_SIGNALS
from archloom.execution.executors import Executor, SerialExecutor
from archloom.execution.job_progress import progress_listener
from archloom.execution.loop import Interrupted
from archloom.execution.process_executor import ProcessExecutor

DEADLINE = 60.0  # far more than anything here takes: only what hangs is given up
EXECUTORS = [SerialExecutor(), ProcessExecutor(1)]


@dataclass(frozen=True)
class Note:
    """A job that writes down which process runs it, and then does what `then` says."""

    name: str
    folder: Path
    then: str = ""

    @property
    def lines(self) -> list[str]:
        path = self.folder / self.name
        return path.read_text().split() if path.exists() else []

    def run(self, emit: Callable[[Any], None], stop: Callable[[], bool]) -> str:
        with (self.folder / self.name).open("a") as file:
            file.write(f"{os.getpid()}\n")
        emit(JobProgressed(self.name, 0.5))
        first = len(self.lines) == 1
        if self.then == "wait":
            wait_until(stop)
            raise Interrupted
        if self.then == "interrupt":
            for number in STOP_SIGNALS:
                os.kill(os.getpid(), number)
        if self.then == "refuse":
            raise ArchloomError("no such thing")
        if self.then == "break" or (self.then == "break once" and first):
            raise RuntimeError("two\nlines")
        if self.then == "die" or (self.then == "die once" and first):
            os.kill(os.getpid(), signal.SIGKILL)
        return self.name.upper()


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end, "gave up waiting"
        time.sleep(0.01)


@pytest.mark.parametrize("executor", EXECUTORS, ids=["serial", "process"])
def test_one_worker_runs_many_jobs_in_their_order_and_returns_their_results(executor: Executor, tmp_path: Path) -> None:
    jobs = [Note(f"job-{number}", tmp_path) for number in range(4)]
    events: list[Any] = []
    assert executor.run(jobs, emit=events.append) == {}
    assert len({line for job in jobs for line in job.lines}) == 1
    assert (str(os.getpid()) in jobs[0].lines) == isinstance(executor, SerialExecutor)
    assert events == [
        event
        for job in jobs
        for event in (JobStarted(job.name), JobProgressed(job.name, 0.5), JobEnded(job.name, job.name.upper()))
    ]


def test_workers_are_kept_within_a_context(tmp_path: Path) -> None:
    jobs = [Note("a", tmp_path), Note("b", tmp_path), Note("c", tmp_path, "die once"), Note("d", tmp_path)]
    with ProcessExecutor(1) as executor:
        for job in jobs:
            assert executor.run([job]) == {}
        (worker,) = jobs[3].lines
    assert jobs[0].lines == jobs[1].lines == jobs[2].lines[:1]
    assert jobs[2].lines[1] == worker != jobs[0].lines[0]
    wait_until(lambda: not is_running(int(worker)))


@pytest.mark.parametrize("executor", EXECUTORS, ids=["serial", "process"])
def test_failures_are_retried_once_while_other_jobs_continue(executor: Executor, tmp_path: Path) -> None:
    wanted = {"a": "refuse", "b": "break", "c": "", "e": "break once", "g": ""}
    jobs = [Note(name, tmp_path, then) for name, then in wanted.items()]
    events: list[Any] = []
    failures = executor.run(jobs, emit=events.append)
    assert {name: failure.message for name, failure in failures.items()} == {
        "a": "no such thing",
        "b": "RuntimeError: two lines",
    }
    assert {job.name: len(job.lines) for job in jobs} == {"a": 2, "b": 2, "c": 1, "e": 2, "g": 1}
    ended = [event for event in events if isinstance(event, JobEnded)]
    assert [event.retrying for event in ended if event.job == "b"] == [True, False]
    assert all("Traceback" in event.failure.details for event in ended if event.job == "b")
    assert [event.failure for event in ended if event.job == "c"] == [None]


def test_a_worker_that_dies_loses_only_its_job(tmp_path: Path) -> None:
    jobs = [Note("a", tmp_path, "die"), Note("b", tmp_path, "die once"), Note("c", tmp_path)]
    failures = ProcessExecutor(2).run(jobs)
    assert failures == {"a": Failure("its process was ended by SIGKILL; was memory short?")}
    assert {job.name: len(job.lines) for job in jobs} == {"a": 2, "b": 2, "c": 1}


def test_on_a_stop_running_jobs_stop_and_none_starts(tmp_path: Path) -> None:
    jobs = [Note("a", tmp_path, "wait"), Note("b", tmp_path, "wait"), Note("c", tmp_path)]
    events: list[Any] = []
    begun = lambda: sum(isinstance(event, JobProgressed) for event in events) == 2  # noqa: E731
    assert ProcessExecutor(2).run(jobs, emit=events.append, stop=begun) == {}
    assert {event.job: event.stopped for event in events if isinstance(event, JobEnded)} == {"a": True, "b": True}
    assert not jobs[2].lines


def test_a_worker_that_was_stopped_runs_the_jobs_of_the_next_call(tmp_path: Path) -> None:
    events: list[Any] = []
    with ProcessExecutor(1) as executor:
        executor.run([Note("a", tmp_path, "wait")], emit=events.append, stop=lambda: len(events) == 2)
        executor.run([Note("b", tmp_path)], emit=events.append)
    assert [(event.job, event.stopped) for event in events if isinstance(event, JobEnded)] == [
        ("a", True),
        ("b", False),
    ]


def test_an_error_in_the_parent_ends_all_workers(tmp_path: Path) -> None:
    """As a second Ctrl-C does, which is a KeyboardInterrupt at any moment."""
    job = Note("a", tmp_path, "wait")

    def listen(event: Any) -> None:
        if isinstance(event, JobProgressed):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ProcessExecutor(1).run([job], emit=listen)
    wait_until(lambda: not is_running(int(job.lines[0])))


class Deadly:
    """Ends the process that loads it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (3,)


def test_a_worker_that_dies_while_it_starts_ends_only_its_job(tmp_path: Path) -> None:
    jobs = [Note("a", tmp_path), Note("b", tmp_path)]
    failures = ProcessExecutor(2, shared=[Deadly()]).run(jobs)
    assert {name: failure.message for name, failure in failures.items()} == dict.fromkeys(
        ("a", "b"), "its process ended with exit code 3 while it started"
    )


class DeadlyOnce:
    """Ends the first process that loads it."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __setstate__(self, state: dict[str, Any]) -> None:
        if not state["mark"].exists():
            state["mark"].touch()
            os._exit(3)
        self.__dict__ = state


def test_a_job_is_retried_after_a_worker_died_while_it_started(tmp_path: Path) -> None:
    executor = ProcessExecutor(1, shared=[DeadlyOnce(tmp_path / "mark")])
    ended: list[Any] = []
    assert executor.run([Note("a", tmp_path)], emit=lambda event: ended.append(event)) == {}
    assert [event.retrying for event in ended if isinstance(event, JobEnded)] == [True, False]


def test_no_jobs_need_no_worker() -> None:
    assert ProcessExecutor(4, shared=[Deadly()]).run([]) == {}


@dataclass(frozen=True)
class Sum:
    """A job that holds a large value, which is shared."""

    name: str
    numbers: list[int]
    folder: None = None

    def run(self, emit: Callable[[Any], None], stop: Callable[[], bool]) -> tuple[int, int]:
        return id(self.numbers), sum(self.numbers)


def test_shared_values_are_sent_once_and_not_with_each_job() -> None:
    numbers, results = list(range(1000)), []

    def listen(event: Any) -> None:
        if isinstance(event, JobEnded):
            results.append(event.result)

    ProcessExecutor(1, shared=[numbers]).run([Sum("a", numbers), Sum("b", numbers), Sum("c", [1])], emit=listen)
    (first, total), (second, _), (third, one) = results
    assert first == second != third
    assert (total, one) == (sum(numbers), 1)


def in_a_fresh_process(folder: Path, script: str) -> subprocess.Popen[str]:
    """Run a script in a process that never had workers."""
    header = f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    (folder / "script.py").write_text(header + textwrap.dedent(script))
    return subprocess.Popen([sys.executable, folder / "script.py"], stdout=subprocess.PIPE, text=True)


def script_of(folder: Path, *, then: str, workers: int) -> str:
    return f"""
        from pathlib import Path
        from archloom.execution.process_executor import ProcessExecutor
        from {Path(__file__).stem} import Note
        jobs = [Note(name, Path({str(folder)!r}), {then!r}) for name in "ab"]
        sys.exit(len(ProcessExecutor({workers}).run(jobs)))
    """


def test_workers_leave_signals_to_the_parent_and_do_not_run_its_script(tmp_path: Path) -> None:
    """Ctrl-C in a terminal reaches all processes, and only the parent may act on it."""
    assert in_a_fresh_process(tmp_path, script_of(tmp_path, then="interrupt", workers=1)).wait(DEADLINE) == 0
    assert [len(Note(name, tmp_path).lines) for name in "ab"] == [1, 1]


def test_workers_end_when_the_parent_is_killed(tmp_path: Path) -> None:
    parent = in_a_fresh_process(tmp_path, script_of(tmp_path, then="wait", workers=2))
    jobs = [Note(name, tmp_path) for name in "ab"]
    wait_until(lambda: all(job.lines for job in jobs))
    parent.kill()
    parent.wait()
    wait_until(lambda: not any(is_running(int(job.lines[0])) for job in jobs))


OWN_CLASS = """
    from dataclasses import dataclass
    from archloom.core.errors import ArchloomError
    from archloom.core.registry import Entry
    from archloom.execution.process_executor import ProcessExecutor

    @dataclass(frozen=True)
    class Find:
        name: str
        path: str
        folder = None

        def run(self, emit, stop):
            return Entry(self.path).load().__name__ if self.path else type(self).__name__

    def run(path):
        try:
            ProcessExecutor(1).run([Find("a", path)], emit=lambda event: print(getattr(event, "result", "")))
        except ArchloomError as error:
            print(error)
"""


@pytest.mark.parametrize(
    ("call", "printed"),
    [
        ("run('')", r"\s*Find\s*"),  # a class of the script travels by value
        ("if __name__ == '__main__':\n        run('__main__:Find')", r"\s*Find\s*"),
        ("run('__main__:Find')", r"(?s).*must call archloom below `if __name__ == '__main__':`.*"),
    ],
)
def test_a_script_needs_a_guard_only_if_jobs_name_its_classes(call: str, printed: str, tmp_path: Path) -> None:
    output, _ = in_a_fresh_process(tmp_path, f"{OWN_CLASS}\n    {call}\n").communicate(timeout=DEADLINE)
    assert re.fullmatch(printed, output), output


def is_running(process: int) -> bool:
    """Return whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_progress_of_a_loop_becomes_progress_of_its_job() -> None:
    events: list[Any] = []
    listen = progress_listener("a", events.append, clock=iter([0.0, 0.1, 0.5, 0.5, 0.6, 0.9, 0.9]).__next__)
    listen(Started("step", 0, 8, 2, ()))
    for position in range(1, 5):
        listen(Advanced(position, 1, {}))
    assert events == [JobProgressed("a", 2 / 8), JobProgressed("a", 4 / 8)]
