"""Values on their way between processes; a pipe or a cluster of our own is the only source of what is unpickled."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

import cloudpickle

from archloom.core.events import JobListener
from archloom.execution.executors import Stop


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickles classes and functions of the calling script by value, and shared values by their number."""

    def __init__(self, file: io.BytesIO, shared: Sequence[object]) -> None:
        super().__init__(file)
        self._numbers = {id(value): number for number, value in enumerate(shared)}

    def persistent_id(self, value: object) -> int | None:
        return self._numbers.get(id(value))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: Sequence[object]) -> None:
        super().__init__(file)
        self._values = shared

    def persistent_load(self, number: int) -> object:
        return self._values[number]


def dump(value: object, shared: Sequence[object] = ()) -> bytes:
    """Pickle a value; shared values in it become numbers."""
    file = io.BytesIO()
    _Pickler(file, shared).dump(value)
    return file.getvalue()


def load(data: bytes, shared: Sequence[object] = ()) -> Any:
    """Return the value that `dump` pickled."""
    return _Unpickler(io.BytesIO(data), shared).load()


def run_pickled(data: bytes, shared: Sequence[object], emit: JobListener, stop: Stop) -> Any:
    """Load a job and run it: a plug-in that cannot be imported here fails only its job."""
    return load(data, shared).run(emit, stop)
