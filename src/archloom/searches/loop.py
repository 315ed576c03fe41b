"""The loop of a search: it knows the space, and looks architectures up in the benchmark table that covers it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from archloom.benchmarks.base import Benchmark, TableEntry
from archloom.core.errors import BenchmarkError
from archloom.core.json_object import JsonObject
from archloom.execution.loop import Interrupted, Loop
from archloom.searches.records import EpochRecord, TrialRecord
from archloom.searches.result import SearchOutcome
from archloom.spaces import Architecture, SearchSpace

RecordT = TypeVar("RecordT", EpochRecord, TrialRecord)


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


class SearchLoop(Loop[RecordT, SearchOutcome]):
    """A search of a space, one-shot or black-box."""

    def __init__(self, space: SearchSpace, *, look_up: TableLookup | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.space = space
        self.look_up = look_up or TableLookup()
        self.notes: list[JsonObject] = []  # of the finalist race, from before an interruption

    def stop_if_asked(self) -> None:
        """Stop long work at the end of a search; the units are saved, and resuming skips the parts in `notes`.

        Raises:
            Interrupted: If the search was asked to stop.
        """
        if self._stop():
            raise Interrupted

    def describe(self, architecture: Architecture) -> JsonObject:
        """Return the fields of a record or an outcome that describe an architecture."""
        text, entry = self.space.format(architecture), self.look_up(architecture)
        return {"architecture": architecture, "text": text, "table_entry": entry}
