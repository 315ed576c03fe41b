"""Kill runs with SIGKILL, at every file operation and at random times; resume them; compare the end bit by bit.

    python tests/campaigns/kills.py --tries 10

Every try kills a run up to three times. Processes are forked, so that torch is imported only once.
"""

from __future__ import annotations

import errno
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

from campaign import run_campaign
from workloads import WORKLOADS, draw_nothing, final_state, refuse_differences

from archloom.core import files
from archloom.core.errors import ArchloomError

MOST_KILLS = 3
REFUSED = 2  # exit code of a run that ends with an error for the user
ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.EDQUOT)
SECONDS = 300  # a run that takes longer hangs
ROOT = Path(tempfile.mkdtemp(prefix="archloom-kills-"))


def kill_at_an_operation(workload: str, rng: random.Random) -> str:
    """Kill before a random file operation of the run, and perhaps again while it resumes."""
    return _torture(workload, rng, lambda: partial(_kill_before, rng.randrange(_reference(workload)[1])))


def kill_at_a_time(workload: str, rng: random.Random) -> str:
    """Kill at a random moment, and perhaps again while it resumes."""
    return _torture(workload, rng, lambda: partial(_kill_after, rng.uniform(0, 1.05 * _reference(workload)[2])))


def fail_at_an_operation(workload: str, rng: random.Random) -> str:
    """Let the disk fail at a random file operation, and perhaps again while the run resumes."""

    def choose() -> Callable[[], None]:
        return partial(_fail_before, rng.randrange(_reference(workload)[1]), rng.choice(ERRORS))

    return _torture(workload, rng, choose)


def _torture(workload: str, rng: random.Random, choose: Callable[[], Callable[[], None]]) -> str:
    wanted, _, _ = _reference(workload)
    folder = ROOT / f"{workload.replace(' ', '-')}-{rng.getrandbits(64):x}"
    killed = 0
    try:
        for _ in range(rng.randint(1, MOST_KILLS)):
            code = _run(workload, folder, prepare=choose())
            assert code in (0, REFUSED, -signal.SIGKILL), f"it ended with {code}: {(ROOT / 'error').read_text()[-300:]}"
            killed += code != 0
        _finish(workload, folder)
        refuse_differences(wanted, final_state(folder))
        strays = list(folder.rglob(".*.tmp"))
        assert not strays, f"{strays[0].name} is left over"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return f"interrupted {killed} times" if killed != 1 else "interrupted once"


def _finish(workload: str, folder: Path) -> None:
    """Resume twice: the second time finds a complete run."""
    for _ in range(2):
        code = _run(workload, folder, prepare=lambda: None)
        assert code == 0, f"resuming ended with {code}: {(folder.parent / 'error').read_text()[-300:]}"


@cache
def _reference(workload: str) -> tuple[Any, int, float]:
    """Return the final state without a kill, the number of file operations, and the seconds that it takes."""
    folder, count = ROOT / f"{workload.replace(' ', '-')}-reference", ROOT / "count"
    start = time.monotonic()
    code = _run(workload, folder, prepare=partial(_count_operations, count))
    seconds = time.monotonic() - start
    assert code == 0, f"the reference ended with {code}: {(ROOT / 'error').read_text()[-300:]}"
    return final_state(folder), len(count.read_bytes()), seconds


def _run(workload: str, folder: Path, *, prepare: Callable[[], None]) -> int:
    """Begin or resume a run in a process of its own; return its exit code, negative for a signal."""
    process = os.fork()
    if process == 0:
        _be_the_run(workload, folder, prepare)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    raise AssertionError(f"{workload} hangs")


def _be_the_run(workload: str, folder: Path, prepare: Callable[[], None]) -> None:
    code = 1
    try:
        sys.stdout = sys.stderr = (ROOT / "error").open("w")
        prepare()
        WORKLOADS[workload](folder)
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


KINDS = {
    f"{workload}, {when}": partial(one, workload)
    for workload in WORKLOADS
    for when, one in (
        ("at an operation", kill_at_an_operation),
        ("at a time", kill_at_a_time),
        ("by a failing disk", fail_at_an_operation),
    )
}

if __name__ == "__main__":
    draw_nothing()
    try:
        run_campaign("kills", __doc__ or "", KINDS, tries=10)
    finally:
        shutil.rmtree(ROOT, ignore_errors=True)
