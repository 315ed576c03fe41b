"""Whether a process works in a run folder. A run locks its folder; asking for that lock could make a run fail.

So the dashboard never takes it. Linux lists all locks in /proc/locks. Elsewhere, the process number in the lock file
must belong to a process that exists.
"""

from __future__ import annotations

import os
from pathlib import Path

LOCK, LOCKS = ".lock", Path("/proc/locks")

Holders = frozenset[tuple[int, int]]
"""The process and the file number of every lock; None where the system does not list them."""


def list_holders(locks: Path = LOCKS) -> Holders | None:
    """Return who holds which lock now."""
    try:
        lines = locks.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return frozenset(found for line in lines if (found := _read_line(line)) is not None)


def _read_line(line: str) -> tuple[int, int] | None:
    """Return process and file of `1: FLOCK  ADVISORY  WRITE 4711 fe:01:8912 0 EOF`; None for those that wait."""
    words = line.split()
    if len(words) < 6 or words[1] != "FLOCK" or not words[4].lstrip("-").isdigit():
        return None
    inode = words[5].rpartition(":")[2]
    return (int(words[4]), int(inode)) if inode.isdigit() else None


def is_running(folder: Path, holders: Holders | None) -> bool:
    """Return whether a process holds the lock of a run folder."""
    try:
        path = folder / LOCK
        inode, text = path.stat().st_ino, path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return False
    if not text.isdigit():
        return False
    return _is_alive(int(text)) if holders is None else (int(text), inode) in holders


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:  # it belongs to another user, so it exists
        return True
    except (OSError, OverflowError):
        return False
    return True
