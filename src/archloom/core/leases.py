"""Leases: one process at a time works in a folder, on whichever machine that sees it.

A lease is a small file that names its holder: host, process, attempt. The holder refreshes it. A lease that was not
refreshed for a while is stale, and another process takes it over: it creates the file of the next attempt, which the
file system lets only one process do, on NFS too. The holder of before finds its file gone, and writes nothing more.

No clock of a machine is compared with that of another one. The time of a refresh and the present time are both times
that the file system gave to a file. Only `find_holder`, which writes nothing, goes by the clock of this machine. A
holder on this machine that has ended is noticed at once.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from archloom.core import files
from archloom.core.errors import ArchloomError, RunLostError
from archloom.core.json_object import from_json_object, to_json_object

SECONDS = 60.0  # without a refresh, after which a lease is stale
REFRESHES = 6  # within that time
TRIES = 20  # while others create the file of the next attempt
PREFIX = ".lease-"
_NEW = f"{PREFIX}new-"  # a file that is about to become a lease
_NAME = re.compile(re.escape(PREFIX) + r"([0-9]+)")
_RELEASED = 0.0  # the time of a lease that its holder gave back

_patience: ContextVar[float] = ContextVar("patience", default=0.0)


class LeaseHeldError(ArchloomError):
    """Another process works in the folder."""


class LeaseLostError(RunLostError):
    """Another process took the folder over, since this one did not refresh its lease in time."""


@dataclass(frozen=True)
class Holder:
    """Who holds a lease."""

    host: str
    process: int
    started: str  # when the process began, in the system's own unit: process numbers are used again
    machine: str  # one boot of one system: only there does the process number mean something
    attempt: int
    token: str  # no other holder has it
    time: float  # by the clock of the host; for people, never compared
    seconds: float  # without a refresh, after which the lease is stale

    @classmethod
    def of_this_process(cls, *, attempt: int, seconds: float) -> Self:
        """Return this process as a holder."""
        process = os.getpid()
        return cls(
            host=socket.gethostname(),
            process=process,
            started=_start_of(process) or "",
            machine=_machine(),
            attempt=attempt,
            token=secrets.token_hex(8),
            time=time.time(),
            seconds=seconds,
        )

    @property
    def has_ended(self) -> bool:
        """Return whether the process is known to have ended; False for one on another machine."""
        return self.machine == _machine() and _start_of(self.process) != self.started

    @property
    def description(self) -> str:
        """Return the process, and its host unless it is this one."""
        return f"pid {self.process}" + ("" if self.host == socket.gethostname() else f" on {self.host}")


@dataclass(frozen=True)
class _Found:
    """A lease file as another process sees it."""

    path: Path
    attempt: int
    holder: Holder | None  # None where the file cannot be read
    refreshed: float  # by the clock of the file system

    def is_fresh(self, now: float) -> bool:
        if self.holder is not None and self.holder.has_ended:
            return False
        return now - self.refreshed < (SECONDS if self.holder is None else self.holder.seconds)


class Lease:
    """The right to write in a folder, while this process refreshes it.

    While the lease is held, `write_atomically` checks it before it replaces a file in the folder.
    """

    def __init__(self, folder: Path, path: Path, holder: Holder) -> None:
        self.folder, self.holder = folder, holder
        self._path = path
        self._released = threading.Event()

    def check(self) -> None:
        """Raise a LeaseLostError unless this process still holds the lease; refresh it, for what follows takes time."""
        self._refresh()
        latest = _find_latest(self.folder)
        holder = None if latest is None else latest.holder
        if holder is None or holder.token != self.holder.token:
            taker = "another process" if holder is None else holder.description
            raise LeaseLostError(
                f"{self.folder} was taken over by {taker}: this process did not refresh its lease for "
                f"{self.holder.seconds:g} s; what was saved before is intact"
            )

    def _refresh(self) -> None:
        with contextlib.suppress(OSError):  # `check` reports a file that is gone; a disk may answer again later
            os.utime(self._path)

    def _keep_refreshing(self) -> None:
        while not self._released.wait(self.holder.seconds / REFRESHES):
            self._refresh()

    @contextlib.contextmanager
    def hold(self) -> Iterator[Lease]:
        """Refresh the lease in the background, and give it back at the end."""
        thread = threading.Thread(target=self._keep_refreshing, name="archloom-lease", daemon=True)
        thread.start()
        try:
            with files.guard(self.folder, self.check):
                yield self
        finally:
            self._released.set()
            thread.join()
            with contextlib.suppress(OSError):  # taken over, or a disk that fails: it becomes stale by itself
                os.utime(self._path, (_RELEASED, _RELEASED))


@contextlib.contextmanager
def hold_lease(
    folder: Path,
    *,
    seconds: float = SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Lease]:
    """Hold the lease of a folder.

    Raises:
        LeaseHeldError: If another process holds it, and did not let it go while `waiting_for_leases` has patience.
        StorageError: If no file can be created in the folder.
    """
    waited = 0.0
    while True:
        try:
            with files.writing(folder):
                lease = _acquire(folder, seconds)
            break
        except LeaseHeldError:
            pause = max(0.05, seconds / REFRESHES / 10)
            if waited >= _patience.get():
                raise
            sleep(pause)
            waited += pause
    with lease.hold():
        yield lease


@contextlib.contextmanager
def waiting_for_leases(seconds: float = 2 * SECONDS) -> Iterator[None]:
    """Wait so long for every lease that is held: its holder may be on a machine that was lost a moment ago."""
    before = _patience.set(seconds)
    try:
        yield
    finally:
        _patience.reset(before)


def find_holder(folder: Path) -> Holder | None:
    """Return who works in a folder now, without writing anything there: for people, since clocks may disagree."""
    try:
        latest = _find_latest(folder)
    except OSError:
        return None
    return latest.holder if latest is not None and latest.is_fresh(time.time()) else None


def is_held(folder: Path) -> bool:
    """Return whether a process works in a folder now, by the clock of the file system."""
    try:
        latest = _find_latest(folder)
        return latest is not None and latest.is_fresh(_read_clock(folder))
    except OSError:
        return False


def is_lease(name: str) -> bool:
    """Return whether a file of this name is a lease, or was about to become one."""
    return name.startswith(PREFIX)


# --- files


def _acquire(folder: Path, seconds: float) -> Lease:
    holder = Holder.of_this_process(attempt=0, seconds=seconds)
    new = folder / f"{_NEW}{holder.token}"
    try:
        for _ in range(TRIES):
            latest = _find_latest(folder)
            holder = replace(holder, attempt=1 if latest is None else latest.attempt + 1)
            files.before_operation("create", new)
            new.write_text(json.dumps(to_json_object(holder)), encoding="utf-8")
            now = new.stat().st_mtime
            if latest is not None and latest.is_fresh(now):
                raise LeaseHeldError(_describe_held(folder, latest, now))
            path = folder / f"{PREFIX}{holder.attempt}"
            if _create_from(new, path) and not _is_late(folder, path, holder.attempt):
                _remove_others(folder, path, now)
                return Lease(folder, path, holder)
    finally:
        new.unlink(missing_ok=True)
    raise LeaseHeldError(f"{folder} is in use by other processes, which follow each other quickly")


def _read_clock(folder: Path) -> float:
    """Return the present time of the file system of a folder: that of a file which is made now, and removed."""
    new = folder / f"{_NEW}{secrets.token_hex(8)}"
    try:
        new.touch()
        return new.stat().st_mtime
    finally:
        new.unlink(missing_ok=True)


def _describe_held(folder: Path, latest: _Found, now: float) -> str:
    holder = latest.holder
    if holder is None:
        return f"{folder} is in use by another process (unknown: {latest.path.name} cannot be read)"
    text = f"{folder} is in use by another process ({holder.description})"
    if holder.machine == _machine():
        return text
    return (
        f"{text}; it refreshed its lease {max(0.0, now - latest.refreshed):.0f} s ago, and after {holder.seconds:g} s "
        "without a refresh the folder is free"
    )


def _create_from(new: Path, path: Path) -> bool:
    """Give the file a second name that must not exist yet; return whether this process did it.

    The number of names decides: on NFS a reply may be lost, and the request be repeated and refused.
    """
    files.before_operation("create", path)
    try:
        os.link(new, path)
    except FileExistsError:
        return new.stat().st_nlink == 2
    except OSError:
        return _create_exclusively(path, new.read_bytes())
    return True


def _create_exclusively(path: Path, data: bytes) -> bool:
    """Create a file that must not exist yet, on a file system without second names."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    return True


def _is_late(folder: Path, path: Path, attempt: int) -> bool:
    """Return whether a later attempt exists, and if so withdraw this one: attempts before it were free once more."""
    if max(_list_attempts(folder)) == attempt:
        return False
    path.unlink(missing_ok=True)
    return True


def _remove_others(folder: Path, mine: Path, now: float) -> None:
    """Remove the leases of earlier attempts, and what killed processes left of their own."""
    with contextlib.suppress(OSError):
        for path in folder.glob(f"{PREFIX}*"):
            is_attempt = _NAME.fullmatch(path.name) is not None
            if path != mine and (is_attempt or path.stat().st_mtime < now - SECONDS):
                path.unlink(missing_ok=True)


def _list_attempts(folder: Path) -> dict[int, Path]:
    matches = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return {int(match[1]): path for match, path in matches if match}


def _find_latest(folder: Path) -> _Found | None:
    """Return the lease of the last attempt; it is looked up again where a taker removes it in this moment."""
    for _ in range(TRIES):
        attempts = _list_attempts(folder)
        if not attempts:
            return None
        found = _read(attempts[max(attempts)])
        if found is not None:
            return found
    return None


def _read(path: Path) -> _Found | None:
    """Read a lease, or return None if it is gone; opening it makes NFS ask the server."""
    match = _NAME.fullmatch(path.name)
    assert match is not None, "only leases are read"
    if files.is_special(path):
        return _Found(path, int(match[1]), None, path.stat().st_mtime)
    try:
        with path.open("rb") as file:
            text, refreshed = file.read(), os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ESTALE:  # removed on the server while it was open
            return None
        raise
    return _Found(path, int(match[1]), _parse(text), refreshed)


def _parse(text: bytes) -> Holder | None:
    try:
        return from_json_object(Holder, json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None


# --- processes


def _machine() -> str:
    """Return what tells this boot of this system, and this view of its processes, from all others."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not Linux
        return socket.gethostname()


def _start_of(process: int) -> str | None:
    """Return when a process began, None if there is no such process; "" where the system does not say when."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None if Path("/proc/self/stat").exists() or not files.is_alive(process) else ""
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]
