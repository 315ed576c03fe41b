"""Kill runs with SIGKILL, at every file operation and at random times; resume them; compare the end bit by bit.

    python tests/campaigns/kills.py --tries 10

Every try kills a run up to three times: real processes, forked so that torch is imported only once. The first kill of
try N is at file operation N, so as many tries as a run has operations kill at each of them. Pools of worker processes
lose their parent or a worker; no worker may outlive its parent.
"""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from campaign import Draws, run_campaign
from workloads import ALL, POOLS, WORKLOADS, final_state, prepare, refuse_differences

from archloom.core import files
from archloom.core.errors import ArchloomError

MOST_KILLS = 3
REFUSED = 2  # exit code of a run that ends with an error for the user
ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.EDQUOT)
SECONDS = 300  # a run that takes longer hangs
SECONDS_TO_END = 20  # of workers whose parent was killed
ROOT = Path(tempfile.mkdtemp(prefix="archloom-kills-"))

Strike = Callable[[], None]
"""Called in the process of a run, before it begins: arranges what interrupts it."""


def kill_at_an_operation(workload: str, rng: Draws) -> str:
    """Kill before a file operation of the run, and perhaps again while it resumes."""
    return _torture(workload, rng, lambda number: partial(_kill_before, _operation(workload, rng, number)))


def kill_at_a_time(workload: str, rng: Draws) -> str:
    """Kill at a random moment, and perhaps again while it resumes."""
    return _torture(workload, rng, lambda number: partial(_kill_after, _moment(workload, rng)))


def kill_a_worker(workload: str, rng: Draws) -> str:
    """Kill one worker process at a random moment; its job is retried, and the run must not end."""
    return _torture(workload, rng, lambda number: partial(_kill_worker_after, _moment(workload, rng)))


def fail_at_an_operation(workload: str, rng: Draws) -> str:
    """Let the disk fail at a file operation, and perhaps again while the run resumes."""

    def choose(number: int) -> Strike:
        return partial(_fail_before, _operation(workload, rng, number), rng.choice(ERRORS))

    return _torture(workload, rng, choose)


def _operation(workload: str, rng: Draws, number: int) -> int:
    """Return the operation to strike at: those of first kills go through all, later ones are random."""
    count = _reference(workload)[1]
    return rng.number % count if number == 0 else rng.randrange(count)


def _moment(workload: str, rng: random.Random) -> float:
    return rng.uniform(0, 1.05 * _reference(workload)[2])


def _torture(workload: str, rng: Draws, choose: Callable[[int], Strike]) -> str:
    wanted, _, _ = _reference(workload)
    folder = ROOT / f"{workload.replace(' ', '-')}-{rng.getrandbits(64):x}"
    struck = 0
    try:
        for number in range(rng.randint(1, MOST_KILLS)):
            code = _run(workload, folder, strike=choose(number))
            assert code in (0, REFUSED, -signal.SIGKILL), f"it ended with {code}: {_read_error()}"
            struck += code != 0 or (ROOT / "struck").exists()
        _finish(workload, folder)
        refuse_differences(wanted, final_state(folder))
        strays = list(folder.rglob(".*.tmp"))
        assert not strays, f"{strays[0].name} is left over"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return f"interrupted {struck} times" if struck != 1 else "interrupted once"


def _finish(workload: str, folder: Path) -> None:
    """Resume twice: the second time finds a complete run."""
    for _ in range(2):
        code = _run(workload, folder, strike=lambda: None)
        assert code == 0, f"resuming ended with {code}: {_read_error()}"


def _read_error() -> str:
    return (ROOT / "error").read_text()[-300:]


@cache
def _reference(workload: str) -> tuple[Any, int, float]:
    """Return the final state without a kill, the number of file operations, and the seconds that it takes."""
    folder, count = ROOT / f"{workload.replace(' ', '-')}-reference", ROOT / "count"
    start = time.monotonic()
    code = _run(workload, folder, strike=partial(_count_operations, count))
    seconds = time.monotonic() - start
    assert code == 0, f"the reference ended with {code}: {_read_error()}"
    return final_state(folder), len(count.read_bytes()), seconds


def _run(workload: str, folder: Path, *, strike: Strike) -> int:
    """Begin or resume a run in a process of its own; return its exit code, negative for a signal."""
    (ROOT / "struck").unlink(missing_ok=True)
    process = os.fork()
    if process == 0:
        _be_the_run(workload, folder, strike)
    end = time.monotonic() + SECONDS
    try:
        while time.monotonic() < end:
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        raise AssertionError(f"{workload} hangs")
    finally:
        _await_workers(process)


def _await_workers(group: int) -> None:
    """Wait until no process of a run is left; one that outlives its parent is a failure."""
    end = time.monotonic() + SECONDS_TO_END
    while left := _processes_of(group):
        if time.monotonic() > end:
            for number in left:
                os.kill(number, signal.SIGKILL)
            raise AssertionError(f"{len(left)} worker processes outlived their parent")
        time.sleep(0.02)


def _processes_of(group: int) -> list[int]:
    """Return the living processes of a process group."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended by now
            state, _, its_group = status.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                found.append(int(status.parent.name))
    return found


def _be_the_run(workload: str, folder: Path, strike: Strike) -> None:
    code = 1
    try:
        os.setpgid(0, 0)
        sys.stdout = sys.stderr = (ROOT / "error").open("w")
        strike()
        ALL[workload](folder)
        code = 0
    except ArchloomError as error:
        code = REFUSED
        print(error, file=sys.stderr, flush=True)
    except BaseException as error:  # it must not return into the campaign
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


# --- in the process of the run


def _count_operations(path: Path) -> None:
    file = path.open("wb", buffering=0)
    files.before_operation = lambda operation, place: (file.write(b"."), None)[1]


def _kill_before(number: int) -> None:
    left = iter(range(number))

    def strike(operation: str, path: Path) -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    files.before_operation = strike


def _fail_before(number: int, code: int) -> None:
    left = iter(range(number))

    def strike(operation: str, path: Path) -> None:
        if next(left, None) is None:
            files.before_operation = files._ignore  # once
            raise OSError(code, os.strerror(code))

    files.before_operation = strike


def _kill_after(seconds: float) -> None:
    signal.signal(signal.SIGALRM, lambda number, frame: os.kill(os.getpid(), signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-4))


def _kill_worker_after(seconds: float) -> None:
    def strike(number: int, frame: object) -> None:
        for worker in multiprocessing.active_children()[:1]:
            worker.kill()
            (ROOT / "struck").touch()

    signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-4))


KINDS = {
    f"{workload}, {when}": partial(one, workload)
    for workload in WORKLOADS
    for when, one in (
        ("at an operation", kill_at_an_operation),
        ("at a time", kill_at_a_time),
        ("by a failing disk", fail_at_an_operation),
    )
} | {
    f"{workload}, {when}": partial(one, workload)
    for workload in POOLS
    for when, one in (("at a time", kill_at_a_time), ("a worker", kill_a_worker))
}

if __name__ == "__main__":
    prepare()
    try:
        run_campaign("kills", __doc__ or "", KINDS, tries=10)
    finally:
        shutil.rmtree(ROOT, ignore_errors=True)
