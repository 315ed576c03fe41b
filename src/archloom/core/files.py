"""Files that are written whole or not at all, and what the system refuses told in one line."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from archloom.core.errors import StorageError

FOLDER_VARIABLE = "ARCHLOOM_DATA"


def data_folder(directory: Path | None) -> Path | None:
    """The folder of data sets and tables: the one given, else that of the environment."""
    variable = os.environ.get(FOLDER_VARIABLE)
    return Path(variable) if directory is None and variable else directory


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever the system refuses inside, as one line that names the path."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """As `reading`, and says what is left: a failed write here never harms what was saved before."""
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
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # before the rename, or a power cut could leave a new name on no contents
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        _flush_folder(path.parent)


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
