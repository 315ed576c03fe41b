"""Tasks on worker processes: who does what, what happens to those that fail, and how all of it ends."""

from __future__ import annotations

import os
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
from archloom.execution.workers import Ended, StoppedTask, Working, carry_out

DEADLINE = 60.0  # far more than anything here takes: only what hangs is given up


@dataclass(frozen=True)
class Note:
    """A task that writes down who did it, and then does what `then` says."""

    name: str
    folder: Path
    then: str = ""

    @property
    def lines(self) -> list[str]:
        path = self.folder / self.name
        return path.read_text().split() if path.exists() else []


def perform(task: Note, tell: Callable[[float], None], stop: Callable[[], bool]) -> None:
    with (task.folder / task.name).open("a") as file:
        file.write(f"{os.getpid()}\n")
    tell(0.5)
    first = len(task.lines) == 1
    if task.then == "wait":
        wait_until(stop)
        raise StoppedTask
    if task.then == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
    if task.then == "refuse":
        raise ArchloomError("no such thing")
    if task.then == "break" or (task.then == "break once" and first):
        raise RuntimeError("two\nlines")
    if task.then == "die" or (task.then == "die once" and first):
        os.kill(os.getpid(), signal.SIGKILL)


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end, "gave up waiting"
        time.sleep(0.01)


def test_one_process_does_many_tasks_in_their_order(tmp_path: Path) -> None:
    tasks = [Note(f"task-{number}", tmp_path) for number in range(4)]
    events: list[Any] = []
    assert carry_out(tasks, perform, jobs=1, listen=events.append) == {}
    assert len({line for task in tasks for line in task.lines}) == 1
    assert str(os.getpid()) not in tasks[0].lines
    told = [(event.task.name, getattr(event, "share", "ended")) for event in events]
    assert told == [(task.name, share) for task in tasks for share in (0.0, 0.5, "ended")]


def test_failures_are_tried_once_more_and_told_while_others_go_on(tmp_path: Path) -> None:
    wanted = {"a": "refuse", "b": "break", "c": "", "d": "die", "e": "break once", "f": "die once", "g": ""}
    tasks = [Note(name, tmp_path, then) for name, then in wanted.items()]
    events: list[Any] = []
    failures = carry_out(tasks, perform, jobs=2, listen=events.append)
    assert failures == {
        "a": "no such thing",
        "b": "RuntimeError: two lines",
        "d": "its process was ended by SIGKILL; was memory short?",
    }
    assert {task.name: len(task.lines) for task in tasks} == {"a": 2, "b": 2, "c": 1, "d": 2, "e": 2, "f": 2, "g": 1}
    ended = [event for event in events if isinstance(event, Ended)]
    assert [event.again for event in ended if event.task.name == "b"] == [True, False]
    assert all("Traceback" in event.details for event in ended if event.task.name == "b")
    assert [event.failure for event in ended if event.task.name == "c"] == [""]


def test_asked_to_stop_what_is_under_way_stops_and_nothing_begins(tmp_path: Path) -> None:
    tasks = [Note("a", tmp_path, "wait"), Note("b", tmp_path, "wait"), Note("c", tmp_path)]
    events: list[Any] = []
    begun = lambda: sum(isinstance(event, Working) and event.share > 0 for event in events) == 2  # noqa: E731
    assert carry_out(tasks, perform, jobs=2, listen=events.append, stop=begun) == {}
    assert {event.task.name: event.stopped for event in events if isinstance(event, Ended)} == {"a": True, "b": True}
    assert not tasks[2].lines


def test_an_error_here_ends_all_processes(tmp_path: Path) -> None:
    """As a second Ctrl-C does, which is a KeyboardInterrupt at any moment."""
    task = Note("a", tmp_path, "wait")

    def listen(event: Any) -> None:
        if getattr(event, "share", 0) > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry_out([task], perform, jobs=1, listen=listen)
    wait_until(lambda: not is_running(int(task.lines[0])))


class Unimportable:
    """Stands for a `perform` that a new process cannot load."""

    def __call__(self, *arguments: Any) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (3,)


def test_workers_that_cannot_start_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ArchloomError, match=r"could not start \(exit code 3\).*__main__"):
        carry_out([Note("a", tmp_path), Note("b", tmp_path)], Unimportable(), jobs=2)


def in_a_fresh_process(folder: Path, *, then: str, jobs: int) -> subprocess.Popen[bytes]:
    """Two tasks on workers of a process that never had any."""
    script = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from archloom.execution.workers import carry_out
        from {Path(__file__).stem} import Note, perform
        if __name__ == "__main__":
            tasks = [Note(name, Path({str(folder)!r}), {then!r}) for name in "ab"]
            sys.exit(len(carry_out(tasks, perform, jobs={jobs})))
    """)
    (folder / "script.py").write_text(script)
    return subprocess.Popen([sys.executable, folder / "script.py"])


def test_workers_leave_signals_to_whoever_hands_out_tasks(tmp_path: Path) -> None:
    """Ctrl-C in a terminal reaches all of them, and only one may decide what to do about it."""
    assert in_a_fresh_process(tmp_path, then="interrupt", jobs=1).wait(DEADLINE) == 0
    assert [len(Note(name, tmp_path).lines) for name in "ab"] == [1, 1]


def test_workers_end_when_whoever_hands_out_tasks_was_killed(tmp_path: Path) -> None:
    parent = in_a_fresh_process(tmp_path, then="wait", jobs=2)
    tasks = [Note(name, tmp_path) for name in "ab"]
    wait_until(lambda: all(task.lines for task in tasks))
    parent.kill()
    parent.wait()
    wait_until(lambda: not any(is_running(int(task.lines[0])) for task in tasks))


def is_running(process: int) -> bool:
    """Whether it is there and no zombie that nobody waits for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_no_tasks_need_no_process() -> None:
    assert carry_out([], Unimportable(), jobs=4) == {}
