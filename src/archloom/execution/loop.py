"""The loop around every strategy: units of work, records, checkpoints, interruption. It names no strategy."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from archloom.benchmarks.base import Benchmark, TableEntry
from archloom.core.errors import BenchmarkError
from archloom.core.events import Event, Listener, Record, Recorded, Started
from archloom.spaces import Architecture, SearchSpace

Clock = Callable[[], float]
Save = Callable[[dict[str, Any], int], object]


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """The search was asked to stop; everything up to here is saved."""


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


class Loop(ABC):
    """A search that can be advanced one unit at a time, saved after any of them, and continued exactly."""

    unit: str  # what is counted: 'step' or 'trial'
    seconds_between_saves: float = 0.0  # where records come faster than they are worth saving
    saves_at_end: bool = True  # after the last unit, however recent the last save is

    def __init__(
        self,
        space: SearchSpace,
        *,
        look_up: TableLookup | None = None,
        listeners: Sequence[Listener] = (),
        clock: Clock = time.perf_counter,
    ) -> None:
        self.space = space
        self.look_up = look_up or TableLookup()
        self.history: list[Record] = []
        self.notes: list[Record] = []  # of long work at the end, from before an interruption
        self.position = 0
        self._stop: Callable[[], bool] = lambda: False
        self._listeners = list(listeners)
        self._clock = clock

    @property
    @abstractmethod
    def total(self) -> int:
        """How many units there are."""

    @property
    def ended(self) -> bool:
        """Whether the search stops before its last unit, by what its records say."""
        return False

    @property
    def units_per_record(self) -> int:
        return 1

    @abstractmethod
    def advance(self) -> Record | None:
        """Do one unit of work; the record, if it completes one."""

    @abstractmethod
    def conclude(self) -> Mapping[str, Any]:
        """The final architecture and what is known of it: `architecture`, `verdict`, `standing`, ..."""

    def run(self, *, save: Save | None = None, stop: Callable[[], bool] = lambda: False) -> Mapping[str, Any]:
        """Go on from where the search is to its end. `save` gets the whole state after every record."""
        self.emit(Started(self.unit, self.position, self.total, self.units_per_record, tuple(self.history)))
        saved, self._stop = self._clock(), stop
        while self.position < self.total and not self.ended:
            record = self.advance()
            if record is not None:
                self.history.append(record)
                self.emit(Recorded(record))
            stopping = stop()
            due = record is not None and self._clock() >= saved + self.seconds_between_saves
            ending = self.saves_at_end and self.position == self.total
            if save is not None and (due or stopping or ending):
                save(self.state_dict(), self.position)
                saved = self._clock()
            if stopping and self.position < self.total:
                raise Interrupted
        return self.conclude()

    def stop_if_asked(self) -> None:
        """For long work at the end of a search: what came before it is saved, and resuming does the rest by `notes`."""
        if self._stop():
            raise Interrupted

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def emit(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)

    def describe(self, architecture: Architecture) -> dict[str, Any]:
        """The part of a record that tells an architecture."""
        return {
            "architecture": dict(architecture),
            "text": self.space.format(architecture),
            "standing": None if (entry := self.look_up(architecture)) is None else vars(entry),
        }

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position, "history": [dict(record) for record in self.history]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.position = state["position"]
        self.history = list(state["history"])
