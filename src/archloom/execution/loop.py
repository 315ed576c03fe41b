"""The loop of every run: units of work, records, checkpoints, interruption. It names no strategy."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from archloom.core.events import Event, Listener, Record, Recorded, Started
from archloom.core.json_object import JsonObject
from archloom.core.state import StateDict

Clock = Callable[[], float]
Save = Callable[[StateDict, int], object]
"""Receives the whole state of a loop, and how many units are done."""

RecordT = TypeVar("RecordT", bound=Record)
OutcomeT = TypeVar("OutcomeT")


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """A run stopped because it was asked to; everything up to here is saved.

    Examples:
        >>> import archloom
        >>> try:
        ...     archloom.search("nb201_mini", "random_search", "digits", out="runs/stopped", stop=lambda: True)
        ... except archloom.Interrupted:
        ...     print("archloom.resume continues it")
        archloom.resume continues it
    """


class FollowerEnded(Exception):  # noqa: N818 - nothing went wrong
    """This rank has done its part; rank 0 has the result."""


class Loop(ABC, Generic[RecordT, OutcomeT]):
    """Work that advances one unit at a time, can be saved after any unit, and resumes exactly."""

    unit: str  # what is counted: 'step' or 'trial'
    seconds_between_saves: float = 0.0  # where records come faster than they are worth saving
    saves_at_end: bool = True  # after the last unit, however recent the last save is

    def __init__(self, *, listeners: Sequence[Listener] = (), clock: Clock = time.perf_counter) -> None:
        self.history: list[RecordT] = []
        self.position = 0
        self._stop: Callable[[], bool] = lambda: False
        self._listeners = list(listeners)
        self._clock = clock

    @property
    @abstractmethod
    def total(self) -> int:
        """Return how many units there are."""

    @property
    def ended(self) -> bool:
        """Return whether the records so far end the loop before its last unit."""
        return False

    @property
    def units_per_record(self) -> int:
        """Return how many units one record covers."""
        return 1

    @abstractmethod
    def advance(self) -> RecordT | None:
        """Do one unit of work; return the record if the unit completes one."""

    @abstractmethod
    def conclude(self) -> OutcomeT:
        """Return the outcome, after the last unit."""

    @abstractmethod
    def read_record(self, value: JsonObject) -> RecordT:
        """Return the record that a checkpoint holds in its JSON form."""

    def run(self, *, save: Save | None = None, stop: Callable[[], bool] = lambda: False) -> OutcomeT:
        """Continue from the current position to the end, and conclude; call `save` after every record.

        Raises:
            Interrupted: If `stop()` was true after a unit; the state of that unit is saved.
        """
        self.run_units(save=save, stop=stop)
        return self.conclude()

    def run_units(self, *, save: Save | None = None, stop: Callable[[], bool] = lambda: False) -> None:
        """Continue from the current position to the last unit, and leave the conclusion to the caller."""
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

    def stop_with(self, stop: Callable[[], bool]) -> None:
        """Ask this function whether to stop from now on."""
        self._stop = stop

    def leave_ranks(self) -> None:
        """Continue alone: the other ranks of the run have ended."""

    def listen(self, listener: Listener) -> None:
        """Call `listener` with every event from now on."""
        self._listeners.append(listener)

    def emit(self, event: Event) -> None:
        """Call every listener with an event."""
        for listener in self._listeners:
            listener(event)

    def refuse_more_units(self, units: int) -> None:
        """Raise a ValueError if a state has more units than the loop: a budget only ever reduces them."""
        if not self.position <= units <= self.total:
            raise ValueError(f"the units must lie in {self.position}..{self.total}, got {units}")

    def state_dict(self) -> StateDict:
        """Return everything that a checkpoint must hold."""
        return {"position": self.position, "history": [record.to_json() for record in self.history]}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        if state["position"] < 0:
            raise ValueError(f"position must be 0 or more, got {state['position']}")
        self.position = state["position"]
        self.history = [self.read_record(value) for value in state["history"]]
