"""The loop of a search: it knows the space, and looks architectures up in the benchmark table that covers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from archloom.benchmarks.base import Benchmark, TableEntry
from archloom.core.errors import BenchmarkError
from archloom.core.events import Record
from archloom.core.json_object import JsonObject
from archloom.execution.loop import Interrupted, Loop
from archloom.spaces import Architecture, SearchSpace


class TableLookup:
    """Looks architectures up in the benchmark table that covers the space, if there is one."""

    def __init__(self, found: tuple[Benchmark, str] | None = None, *, data: str = "") -> None:
        self._found, self._data = found, data

    def __call__(self, architecture: Architecture) -> TableEntry | None:
        """Return the entry of an architecture, or None if there is no table or the table lacks it."""
        if self._found is None:
            return None
        table, dataset = self._found
        try:
            entry = table.look_up(architecture, dataset)
        except BenchmarkError:  # a table converted in part does not know every architecture
            return None
        return replace(entry, instead_of=None if self._data in ("", dataset) else self._data)


class SearchLoop(Loop[Record, Mapping[str, Any]]):
    """A search of a space, one-shot or black-box."""

    def __init__(self, space: SearchSpace, *, look_up: TableLookup | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.space = space
        self.look_up = look_up or TableLookup()
        self.notes: list[Record] = []  # of the finalist race, from before an interruption

    def read_record(self, value: JsonObject) -> Record:
        return value

    def stop_if_asked(self) -> None:
        """Stop long work at the end of a search; the units are saved, and resuming skips the parts in `notes`.

        Raises:
            Interrupted: If the search was asked to stop.
        """
        if self._stop():
            raise Interrupted

    def describe(self, architecture: Architecture) -> dict[str, Any]:
        """Return the part of a record that describes an architecture."""
        return {
            "architecture": dict(architecture),
            "text": self.space.format(architecture),
            "standing": None if (entry := self.look_up(architecture)) is None else vars(entry),
        }
