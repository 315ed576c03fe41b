"""Write files whole or not at all, and report errors of the system in one line."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from archloom.core.errors import StorageError

FOLDER_VARIABLE = "ARCHLOOM_DATA"


def _ignore(operation: str, path: Path) -> None:
    """Do nothing before an operation on a file."""


before_operation: Callable[[str, Path], None] = _ignore
"""Called before every operation on a file of a run: tests/campaigns kills the process or fails the disk there."""


_guards: dict[Path, Callable[[], None]] = {}
ABANDONED = 3600.0  # seconds after which a file that another machine was writing is a leftover


@contextmanager
def guard(folder: Path, check: Callable[[], None]) -> Iterator[None]:
    """Call `check` before every file in a folder, or in a folder inside it, is replaced or removed."""
    place = folder.absolute()
    _guards[place] = check
    try:
        yield
    finally:
        del _guards[place]


def check_guards(path: Path) -> None:
    """Raise what the guard of a folder around a path raises."""
    if _guards:
        for folder in path.absolute().parents:
            if folder in _guards:
                _guards[folder]()


def data_folder(directory: Path | None) -> Path | None:
    """Return the folder of data sets and tables: the given one, else that of the environment."""
    variable = os.environ.get(FOLDER_VARIABLE)
    return Path(variable) if directory is None and variable else directory


def expand(path: str | Path) -> Path:
    """Return a path with the home folder in the place of `~`; a user that there is not stays as it is written."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def exists(path: Path) -> bool:
    """Return whether there is something at a path; a file can say any text, such as one too long for a name."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def is_special(path: Path) -> bool:
    """Return whether a path is a pipe, a device or a socket, from which a reader could wait forever."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def refuse_special(path: Path) -> None:
    """Raise an OSError for what a run folder never holds: a pipe, a device or a socket."""
    if is_special(path):
        raise OSError(errno.EINVAL, "it is no ordinary file")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an OSError inside the context into a StorageError that names the path."""
    try:
        before_operation("read", path)
        yield
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError into a StorageError like `reading`, and say that what was saved before is intact."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        advice = ": free some space and try again" if full else ""
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}; what was saved before is intact{advice}"
        ) from error


def write_atomically(path: Path, data: bytes) -> None:
    """Put `data` at `path` so that a crash at any moment leaves the old file or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}@{socket.gethostname()}.tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            before_operation("create", temporary)
            with temporary.open("wb") as file:
                before_operation("write", temporary)
                file.write(data)
                file.flush()
                before_operation("sync", temporary)
                os.fsync(file.fileno())  # before the rename, or a power cut could leave a new name on no contents
            before_operation("rename", path)
            check_guards(path)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        before_operation("sync folder", path.parent)
        _flush_folder(path.parent)


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left of files that they were writing, in a folder and in those below it."""
    with contextlib.suppress(OSError):  # a disk that cannot be written has other problems, which are reported later
        for stray in (*folder.glob(".*.tmp"), *folder.glob("*/.*.tmp")):
            if not _is_being_written(stray):
                stray.unlink(missing_ok=True)


def _is_being_written(temporary: Path) -> bool:
    """Return whether the process whose number is in the name lives, such as one that writes a report.

    Numbers of another machine mean nothing here: what it writes is left alone for an hour.
    """
    written, _, host = temporary.name.removesuffix(".tmp").partition("@")
    number = written.rpartition(".")[2]
    if host not in ("", socket.gethostname()):
        return time.time() - temporary.stat().st_mtime < ABANDONED
    return number.isdecimal() and int(number) != os.getpid() and is_alive(int(number))


def is_alive(process: int) -> bool:
    """Return whether a process of this number exists on this machine."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # of another user
        return True
    return True


def _flush_folder(folder: Path) -> None:
    """Make a rename inside the folder last through a power cut."""
    if os.name != "posix":  # elsewhere a folder cannot be opened, and renames are journalled
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems know no such request
            raise
    finally:
        os.close(descriptor)
