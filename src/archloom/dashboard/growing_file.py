"""A file that another process appends to, read piece by piece: no byte is read twice."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from archloom.core.errors import ArchloomError
from archloom.core.files import refuse_special
from archloom.core.json_object import JsonObject

RecordT = TypeVar("RecordT")


@dataclass(frozen=True)
class Growth:
    """What is new in a file: whole lines, and whether they replace all lines before."""

    lines: tuple[bytes, ...] = ()
    restarted: bool = False

    def __bool__(self) -> bool:
        return bool(self.lines) or self.restarted


class GrowingFile:
    """Return the lines that are new since the last call; a line without its end waits for the rest."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: tuple[int, int] | None = None  # its device and number: a resumed run replaces the file
        self._rest = b""
        self.offset = 0  # of the first byte that was not read

    @property
    def bytes_of_whole_lines(self) -> int:
        """Return how many bytes the lines have that were returned."""
        return self.offset - len(self._rest)

    def skip_to_end(self) -> None:
        """Leave out all that is there now, unread."""
        try:
            found = self._path.stat()
        except OSError:
            return
        self._file, self._rest, self.offset = (found.st_dev, found.st_ino), b"", found.st_size

    def read(self) -> Growth:
        """Return what is new; a file that is missing or cannot be read is empty."""
        try:
            refuse_special(self._path)
            found = self._path.stat()
            same, size = (found.st_dev, found.st_ino) == self._file, found.st_size
            if same and size == self.offset:
                return Growth()
            return self._read_on(restart=not same or size < self.offset)
        except OSError:
            had, self._file, self._rest, self.offset = self._file, None, b"", 0
            return Growth(restarted=had is not None)

    def _read_on(self, *, restart: bool) -> Growth:
        had = self._file is not None
        if restart:
            self._rest, self.offset = b"", 0
        with self._path.open("rb") as file:
            found = os.fstat(file.fileno())
            self._file = found.st_dev, found.st_ino
            file.seek(self.offset)
            new = file.read()
        self.offset += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        return Growth(tuple(lines), restarted=restart and had)


class RecordFile(Generic[RecordT]):
    """The typed records of a file that grows; lines that cannot be read are counted."""

    def __init__(self, path: Path, parse: Callable[[JsonObject], RecordT]) -> None:
        self._file, self._parse = GrowingFile(path), parse
        self.records: list[RecordT] = []
        self.damaged = 0

    def update(self) -> bool:
        """Read what is new; return whether there was anything."""
        growth = self._file.read()
        if growth.restarted:
            self.records, self.damaged = [], 0
        for line in growth.lines:
            record = self._read_line(line)
            if record is None:
                self.damaged += 1
            else:
                self.records.append(record)
        return bool(growth)

    def _read_line(self, line: bytes) -> RecordT | None:
        value = parse_object(line)
        if value is None:
            return None
        try:
            return self._parse(value)
        except (ArchloomError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return None


def parse_object(data: bytes | str) -> JsonObject | None:
    """Return the JSON object in a text, or None if there is none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
