"""A folder has one writer at a time, whatever clocks say, and a writer that lost it writes nothing more."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from archloom.core import leases
from archloom.core.errors import StorageError
from archloom.core.files import write_atomically
from archloom.core.json_object import to_json_object
from archloom.core.leases import (
    Holder,
    LeaseHeldError,
    LeaseLostError,
    find_holder,
    hold_lease,
    is_held,
    waiting_for_leases,
)

HOLD = """
import sys, time
from pathlib import Path
skew, seconds = float(sys.argv[2]), float(sys.argv[3])
real = time.time
time.time = lambda: real() + skew  # what this host takes for the present
from archloom.core.files import write_atomically
from archloom.core.leases import LeaseHeldError, LeaseLostError, hold_lease
folder = Path(sys.argv[1])
try:
    with hold_lease(folder, seconds=seconds):
        print("held", flush=True)
        for line in sys.stdin:
            write_atomically(folder / "state", line.strip().encode())
            print("written", flush=True)
except LeaseHeldError:
    print("refused", flush=True)
except LeaseLostError as error:
    print(error, flush=True)
"""


@contextmanager
def process(folder: Path, *, skew: float = 0.0, seconds: float = 60.0) -> Iterator[subprocess.Popen[str]]:
    arguments = [sys.executable, "-c", HOLD, str(folder), str(skew), str(seconds)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


def ask(one: subprocess.Popen[str], line: str = "") -> str:
    if line:
        assert one.stdin is not None
        one.stdin.write(f"{line}\n")
        one.stdin.flush()
    assert one.stdout is not None
    return one.stdout.readline().strip()


def wait_until(condition: Callable[[], bool], *, most: float = 60.0) -> None:
    end = time.monotonic() + most
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.02)


def put_lease(folder: Path, *, age: float, attempt: int = 3, **changes: object) -> Path:
    """Write the lease of a process on another machine, refreshed so many seconds ago."""
    mine = Holder.of_this_process(attempt=attempt, seconds=60.0)
    holder = replace(mine, host="far", machine="another boot", process=7, **changes)  # type: ignore[arg-type]
    path = folder / f".lease-{attempt}"
    path.write_text(json.dumps(to_json_object(holder)))
    now = path.stat().st_mtime
    os.utime(path, (now - age, now - age))
    return path


def test_a_lease_names_its_holder_and_is_given_back(tmp_path: Path) -> None:
    with hold_lease(tmp_path) as lease:
        found = find_holder(tmp_path)
        assert found == lease.holder
        assert (found.process, found.attempt, found.has_ended) == (os.getpid(), 1, False)
        with pytest.raises(LeaseHeldError, match=rf"in use by another process \(pid {os.getpid()}\)$"):
            hold_lease(tmp_path).__enter__()
    assert find_holder(tmp_path) is None
    with hold_lease(tmp_path) as lease:
        assert lease.holder.attempt == 2
    assert [path.name for path in tmp_path.iterdir()] == [".lease-2"]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file or directory"):
        hold_lease(tmp_path / "missing").__enter__()
    assert find_holder(tmp_path / "missing") is None


@pytest.mark.parametrize("skew", [0.0, 3600.0, -3600.0])
def test_clocks_of_hosts_do_not_matter(tmp_path: Path, skew: float) -> None:
    """A host whose clock is an hour off neither takes a fresh lease, nor loses its own, nor waits for a stale one."""
    path = put_lease(tmp_path, age=1.0, time=time.time() - skew)
    with process(tmp_path, skew=skew) as late:
        assert ask(late) == "refused"
    assert path.exists()
    os.utime(path, (time.time() - 61, time.time() - 61))
    with process(tmp_path, skew=skew) as taker:
        assert ask(taker) == "held"
        with process(tmp_path, skew=-skew) as other:
            assert ask(other) == "refused"
        assert ask(taker, "one") == "written"


@pytest.mark.parametrize("skew", [0.0, 3600.0, -3600.0])
def test_whether_a_folder_is_held_is_seen_by_any_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skew: float
) -> None:
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + skew)
    assert not is_held(tmp_path) and not is_held(tmp_path / "missing")
    path = put_lease(tmp_path, age=1.0)
    assert is_held(tmp_path)
    put_lease(tmp_path, age=61.0)
    assert not is_held(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_fresh_lease_of_another_machine_says_when_it_is_free(tmp_path: Path) -> None:
    put_lease(tmp_path, age=12.0)
    with pytest.raises(LeaseHeldError) as caught:
        hold_lease(tmp_path).__enter__()
    assert str(caught.value) == (
        f"{tmp_path} is in use by another process (pid 7 on far); it refreshed its lease 12 s ago, and after 60 s "
        "without a refresh the folder is free"
    )


def test_a_process_of_this_machine_that_ended_holds_nothing(tmp_path: Path) -> None:
    with process(tmp_path) as holder:
        assert ask(holder) == "held"
        with pytest.raises(LeaseHeldError, match=f"pid {holder.pid}"):
            hold_lease(tmp_path).__enter__()
        holder.kill()
        holder.wait()
    with hold_lease(tmp_path) as lease:
        assert lease.holder.attempt == 2


def test_a_process_number_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    mine = Holder.of_this_process(attempt=1, seconds=60.0)
    (tmp_path / ".lease-1").write_text(json.dumps(to_json_object(replace(mine, started="1"))))
    with hold_lease(tmp_path) as lease:
        assert lease.holder.attempt == 2


def test_a_holder_that_was_stopped_too_long_writes_nothing_more(tmp_path: Path) -> None:
    with process(tmp_path, seconds=1.0) as holder:
        assert ask(holder) == "held"
        assert ask(holder, "one") == "written"
        holder.send_signal(signal.SIGSTOP)
        with waiting_for_leases(60), hold_lease(tmp_path) as lease:
            assert lease.holder.attempt == 2
            write_atomically(tmp_path / "state", b"two")
            holder.send_signal(signal.SIGCONT)
            assert ask(holder, "three") == (
                f"{tmp_path} was taken over by pid {os.getpid()}: this process did not refresh its lease for 1 s; what "
                "was saved before is intact"
            )
            assert (tmp_path / "state").read_bytes() == b"two"
            lease.check()
        assert holder.wait() == 0
    assert [path.name for path in tmp_path.glob(".*")] == [".lease-2"]  # nothing of the late file, either


def test_a_holder_that_was_stopped_for_less_goes_on(tmp_path: Path) -> None:
    with process(tmp_path) as holder:
        assert ask(holder) == "held"
        holder.send_signal(signal.SIGSTOP)
        with pytest.raises(LeaseHeldError):
            hold_lease(tmp_path).__enter__()
        holder.send_signal(signal.SIGCONT)
        assert ask(holder, "one") == "written"


def test_the_holder_refreshes_its_lease(tmp_path: Path) -> None:
    with hold_lease(tmp_path, seconds=0.3):
        path = tmp_path / ".lease-1"
        os.utime(path, (1.0, 1.0))
        wait_until(lambda: path.stat().st_mtime > 1.0)


def test_of_many_that_want_a_stale_lease_one_gets_it(tmp_path: Path) -> None:
    put_lease(tmp_path, age=100.0)
    started = [process(tmp_path) for _ in range(6)]
    entered = [one.__enter__() for one in started]
    try:
        assert sorted(ask(one) for one in entered) == ["held"] + 5 * ["refused"]
    finally:
        for one in started:
            one.__exit__(None, None, None)


def test_a_lost_reply_to_the_request_is_no_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def link_twice(*paths: Path) -> None:
        link(*paths)
        link(*paths)  # as NFS does if the first reply is lost

    monkeypatch.setattr(os, "link", link_twice)
    with hold_lease(tmp_path) as lease:
        assert lease.holder.attempt == 1


def test_a_file_system_without_links_has_leases_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with hold_lease(tmp_path):
        with pytest.raises(LeaseHeldError):
            hold_lease(tmp_path).__enter__()
        write_atomically(tmp_path / "state", b"one")
        assert not leases._create_exclusively(tmp_path / ".lease-1", b"")


def test_a_slow_taker_yields_to_those_that_came_and_went_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It found attempt 3 stale; attempt 4 came and ended, and attempt 5 is at work when it creates attempt 4 again."""
    stale = put_lease(tmp_path, age=100.0)
    create, calls = leases._create_from, []

    def create_late(new: Path, path: Path) -> bool:
        if not calls:
            stale.unlink()
            put_lease(tmp_path, age=1.0, attempt=5)
        calls.append(path.name)
        return create(new, path)

    monkeypatch.setattr(leases, "_create_from", create_late)
    with pytest.raises(LeaseHeldError, match="pid 7 on far"):
        hold_lease(tmp_path).__enter__()
    assert calls == [".lease-4"]
    assert [path.name for path in tmp_path.iterdir()] == [".lease-5"]


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"host": 1}'])
def test_a_lease_that_cannot_be_read_counts_until_it_is_old(tmp_path: Path, text: str) -> None:
    path = tmp_path / ".lease-1"
    path.write_text(text)
    with pytest.raises(LeaseHeldError, match="cannot be read"):
        hold_lease(tmp_path).__enter__()
    os.utime(path, (1.0, 1.0))
    with hold_lease(tmp_path):
        pass


def test_what_killed_takers_left_is_removed_once_it_is_old(tmp_path: Path) -> None:
    old, new = tmp_path / ".lease-new-a", tmp_path / ".lease-new-b"
    old.touch()
    new.touch()
    os.utime(old, (1.0, 1.0))
    with hold_lease(tmp_path):
        assert (old.exists(), new.exists()) == (False, True)


def test_patience_waits_for_a_lease_and_ends(tmp_path: Path) -> None:
    put_lease(tmp_path, age=0.0)
    slept: list[float] = []
    with waiting_for_leases(10), pytest.raises(LeaseHeldError):
        hold_lease(tmp_path, sleep=slept.append).__enter__()
    assert sum(slept) == pytest.approx(10, abs=1.1)

    def release(_: float) -> None:
        os.utime(tmp_path / ".lease-3", (1.0, 1.0))

    with waiting_for_leases(10), hold_lease(tmp_path, sleep=release) as lease:
        assert lease.holder.attempt == 4


def test_a_lost_lease_is_noticed_before_a_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    with pytest.raises(LeaseLostError), hold_lease(tmp_path):
        write_atomically(tmp_path / "inner" / "state", b"one")
        put_lease(tmp_path, age=0.0)
        try:
            write_atomically(tmp_path / "inner" / "state", b"two")
        finally:
            assert (tmp_path / "inner" / "state").read_bytes() == b"one"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_the_place_of_a_lease_counts_as_one_that_cannot_be_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lease-1")
    with pytest.raises(LeaseHeldError, match="cannot be read"), hold_lease(tmp_path):
        pass
