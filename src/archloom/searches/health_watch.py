"""Watch the health of a search: measure it after every epoch, end a search that collapses, restore a healthy epoch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

from archloom.core.state import StateDict
from archloom.data.loader import Batch
from archloom.searches.monitor import Alarm, Monitor
from archloom.searches.records import EarlyStop, EpochRecord
from archloom.strategies.base import OneShot
from archloom.strategies.differentiable import Differentiable
from archloom.supernet import SharedWeights


class HealthWatch:
    """Applies the rules of a monitor to the records of a search, and keeps the states that it may restore."""

    def __init__(self, monitor: Monitor | None, strategy: OneShot) -> None:
        self._monitor, self._strategy = monitor, strategy
        self.kept: list[StateDict] = []  # states of the last epochs, to roll back to

    def add_health(
        self,
        record: EpochRecord,
        history: Sequence[EpochRecord],
        *,
        weights: SharedWeights,
        examples: Batch,
        has_time: Callable[[int], bool],  # for so many curvature products
    ) -> EpochRecord:
        """Return the record with the health of the search, and with an alarm if something is wrong."""
        monitor, strategy = self._monitor, self._strategy
        if monitor is None:
            return record
        health = monitor.measure(
            strategy.space,
            record.architecture,
            record.probabilities,
            policy=strategy.policy if isinstance(strategy, Differentiable) else None,
            weights=weights,
            images=examples,
            derived_score=record.derived_score,
            sharpness=has_time(monitor.settings.eigenvalue_steps),
        )
        alarm = monitor.alarm([*history, replace(record, health=health)])
        if monitor.settings.action == "roll_back":
            state = copy.deepcopy({"strategy": strategy.state_dict(), "weights": weights.state_dict()})
            self.kept = [*self.kept, state][-1 - monitor.settings.window :]
        return replace(record, health=replace(health, alarm=None if alarm is None else alarm.reason))

    def find_end(self, history: Sequence[EpochRecord]) -> Alarm | None:
        """Return the alarm that ends the search early, if there is one and it is to end a search."""
        if self._monitor is None or self._monitor.settings.action not in ("stop", "roll_back"):
            return None
        return self._monitor.alarm(history)

    def roll_back(self, history: Sequence[EpochRecord], weights: SharedWeights) -> EarlyStop | None:
        """Restore the last healthy epoch if the monitor ended the search and is to roll back."""
        alarm = self.find_end(history)
        if alarm is None or self._monitor is None:
            return None
        epoch = last = len(history) - 1
        if self._monitor.settings.action == "roll_back":
            epoch = max(alarm.healthy, last + 1 - len(self.kept))
            state = self.kept[epoch - last - 1]
            self._strategy.load_state_dict(state["strategy"])
            weights.load_state_dict(state["weights"])
        return EarlyStop(alarm.reason, after_epoch=last + 1, as_of_epoch=epoch + 1)
