"""The folder of one run: its configuration, metrics, checkpoints and result.

Every file is plain text or safetensors, and whole or absent. So any program that reads files can resume a run, report
on it and compare it.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from archloom.core import files
from archloom.core.errors import CheckpointError, SettingError, StorageError, one_line, suggestion
from archloom.core.files import reading, refuse_special, remove_leftovers, write_atomically, writing
from archloom.core.json_object import JsonObject
from archloom.core.leases import Lease, hold_lease, is_lease
from archloom.core.settings import Settings, read_toml, write_toml
from archloom.execution.checkpoint import Checkpoints

_CONFIG = "config.toml"
_LEFTOVERS = (".lock", ".*.tmp")  # of a run that ended before its configuration was written; older ones had locks


State = Literal["finished", "interrupted", "not begun"]


class FolderTakenError(SettingError):
    """A run was to begin in a folder that holds one."""


class RunFolder:
    """The folder of one run: `create` makes one, `open` finds one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_path = path / _CONFIG
        self.metrics_path = path / "metrics.jsonl"
        self.notes_path = path / "finalists.jsonl"
        self.architecture_path = path / "architecture.json"
        self.report_path = path / "report.html"
        self.cell_path = path / "cell.svg"

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    @classmethod
    def create(cls, path: Path, *, settings: Settings) -> RunFolder:
        """Make the folder of a run; it must be new or empty."""
        run = cls(path)
        run.refuse_if_taken()
        with run.lock():
            run.refuse_if_taken()  # another process may have been quicker
            write_atomically(run.config_path, write_toml(settings).encode())
        return run

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Return the folder of an earlier run."""
        with reading(path):
            if not (path / _CONFIG).is_file():
                raise SettingError(f"no run at {path}: {_CONFIG} is missing{_near_runs(path)}")
        return cls(path)

    @staticmethod
    def next_free(root: Path, stem: str) -> Path:
        """Return `root/stem-1`, or the number after the highest there is: numbers keep the order of time."""
        stem = re.sub(r"[^\w.-]+", "-", stem)
        taken = [path.name.removeprefix(f"{stem}-") for path in _children(root) if path.name.startswith(f"{stem}-")]
        return root / f"{stem}-{max((int(number) for number in taken if number.isdecimal()), default=0) + 1}"

    def refuse_if_taken(self) -> None:
        """Raise a SettingError unless the folder is new or empty."""
        with writing(self.path):
            if self.config_path.exists():
                raise FolderTakenError(
                    f"{self.path} already holds a run; `archloom resume {self.path}` continues it, "
                    "or choose another --out"
                )
            names = [child.name for child in _children(self.path)]
            strange = [
                n for n in names if not is_lease(n) and not any(fnmatch.fnmatch(n, known) for known in _LEFTOVERS)
            ]
            if strange or (self.path.exists() and not self.path.is_dir()):
                raise SettingError(f"{self.path} exists and is not a run; choose another --out")

    # --- contents

    @property
    def config(self) -> Settings:
        """Return the contents of config.toml."""
        return read_toml(self.config_path)

    def list_missing(self) -> list[str]:
        """Return the names of files that every finished run has and this one lacks."""
        return [path.name for path in (self.report_path, self.cell_path) if not path.is_file()]

    @property
    def checkpoints(self) -> Checkpoints:
        """Return the checkpoints of the run."""
        return Checkpoints(self.path / "checkpoints")

    @contextlib.contextmanager
    def explain_misfit(self) -> Iterator[None]:
        """Turn the errors of loading a state that does not fit the configuration into one line."""
        try:
            yield
        except StorageError:
            raise
        except (LookupError, RuntimeError, ValueError, TypeError, AttributeError, OverflowError) as error:
            raise CheckpointError(
                f"the checkpoint of {self.path} does not fit its config.toml ({type(error).__name__}: "
                f"{one_line(error)}); was the configuration changed?"
            ) from error

    @property
    def finished(self) -> bool:
        """Return whether the result is there and can be read."""
        try:
            return self.read_result() is not None
        except StorageError:
            return False

    @property
    def state(self) -> State:
        """Return "finished", "interrupted" or "not begun"."""
        if self.finished:
            return "finished"
        return "interrupted" if self.config_path.is_file() else "not begun"

    def write_metrics(self, history: Sequence[JsonObject]) -> None:
        """Replace the metrics: at the start, and on resume, as a crash may have left later ones."""
        write_atomically(self.metrics_path, "".join(_json_line(record) for record in history).encode())

    @contextlib.contextmanager
    def open_metrics(self) -> Iterator[Callable[[JsonObject], None]]:
        """Give a function that appends a record; each is a whole line on disk at once."""
        with writing(self.metrics_path):
            file = self.metrics_path.open("a", encoding="utf-8", buffering=1)

        def append(record: JsonObject) -> None:
            with writing(self.metrics_path):
                files.before_operation("append", self.metrics_path)
                file.write(_json_line(record))

        try:
            yield append
        finally:
            with contextlib.suppress(OSError):  # a failed write was reported already
                file.close()

    def read_metrics(self) -> list[JsonObject]:
        """Return all records, without a last line that a crash cut short: resuming writes it again."""
        return _read_lines(self.metrics_path)

    def note(self, record: JsonObject) -> None:
        """Append the record of a finalist; a crash afterwards does not lose it."""
        write_atomically(self.notes_path, "".join(map(_json_line, [*self.read_notes(), record])).encode())

    def read_notes(self) -> list[JsonObject]:
        """Return the notes that the run has written so far."""
        return _read_lines(self.notes_path)

    def write_result(self, result: JsonObject) -> None:
        """Write architecture.json, which marks the run as finished."""
        text = json.dumps(_finite(result), allow_nan=False, indent=2)
        write_atomically(self.architecture_path, f"{text}\n".encode())

    def read_result(self) -> JsonObject | None:
        """Return what `write_result` wrote, or None before that."""
        data = _read_if_there(self.architecture_path)
        if data is None:
            return None
        try:
            return _json_object(data)
        except ValueError as error:
            raise CheckpointError(f"{self.architecture_path} is damaged ({error})") from error

    def write_text(self, name: str, text: str) -> None:
        """Write a report or a drawing."""
        assert Path(name).name == name, "a run is one folder without folders of text"
        write_atomically(self.path / name, text.encode())

    # --- one process at a time

    @contextlib.contextmanager
    def lock(self) -> Iterator[Lease]:
        """Keep other processes out of the folder, on this machine and on others; the lease of a dead one is free."""
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with hold_lease(self.path) as lease:
            remove_leftovers(self.path)
            yield lease


def _children(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _near_runs(path: Path) -> str:
    """Return a hint at runs inside the folder or, if there are none, beside it."""
    for folder in (path, path.parent):
        runs = [child.name for child in _children(folder) if (child / _CONFIG).is_file()]
        if runs:
            return suggestion(path.name, runs)
    return ""


def _read_lines(path: Path) -> list[JsonObject]:
    data = _read_if_there(path)
    lines = data.rstrip(b"\n").split(b"\n") if data else []
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(_json_object(line))
        except ValueError as error:
            if number < len(lines):
                raise CheckpointError(
                    f"line {number} of {path} is damaged ({error}); remove it to read the others"
                ) from error
    return records


def _read_if_there(path: Path) -> bytes | None:
    with reading(path):
        refuse_special(path)
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None


def _json_line(record: JsonObject) -> str:
    try:
        return json.dumps(record, allow_nan=False) + "\n"
    except (TypeError, ValueError):  # a mapping that is no dict, or a number that JSON lacks
        return json.dumps(_finite(record), allow_nan=False) + "\n"


def _json_object(data: bytes) -> JsonObject:
    try:
        value = json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _finite(value: Any) -> Any:
    """Return the value with null for numbers that JSON lacks (nan, inf)."""
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
