"""How much memory there is: what the system has free, within the limit of a container."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

MEMORY_FILE = Path("/proc/meminfo")
GROUP_LIMIT, GROUP_USED = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")


def available_memory() -> int | None:
    """Return the bytes that a process can still use; None where the system does not say it."""
    known = [value for value in (_free(), _left_in_group()) if value is not None]
    return min(known) if known else None


def _free() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in MEMORY_FILE.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _left_in_group() -> int | None:
    """Return what the limit of a container leaves; 'max', which is no number, means no limit."""
    with suppress(OSError, ValueError):
        return max(0, int(GROUP_LIMIT.read_text(encoding="ascii")) - int(GROUP_USED.read_text(encoding="ascii")))
    return None


def is_refused_memory(error: BaseException) -> bool:
    """Return whether an error says that the system gave no memory; torch raises a plain RuntimeError on a CPU."""
    texts = ("can't allocate memory", "not enough memory", "out of memory")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in texts)
    )
