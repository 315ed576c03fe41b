from __future__ import annotations

import pytest

from archloom.benchmarks.base import TableEntry
from archloom.core.errors import BenchmarkError
from archloom.core.events import Recorded, Started
from archloom.execution.loop import Interrupted, Loop, TableLookup
from archloom.spaces import Nb201

SPACE = Nb201(nodes=2)


class Counting(Loop):
    """Counts to six, with a record for every second unit."""

    unit = "step"
    total = 6
    units_per_record = 2

    def advance(self):
        self.position += 1
        return {"at": self.position} if self.position % 2 == 0 else None

    def conclude(self):
        return {"counted": self.position}


def test_runs_to_the_end_and_tells_what_happens():
    told = []
    search = Counting(SPACE, listeners=[told.append])
    assert search.run() == {"counted": 6}
    assert told == [Started("step", 0, 6, 2, ()), *(Recorded({"at": at}) for at in (2, 4, 6))]
    assert search.history == [{"at": 2}, {"at": 4}, {"at": 6}]


def test_state_is_saved_with_every_record():
    saved = []
    Counting(SPACE).run(save=lambda state, step: saved.append((step, state)))
    assert [step for step, _ in saved] == [2, 4, 6]
    assert saved[1][1] == {"position": 4, "history": [{"at": 2}, {"at": 4}]}


def test_a_stop_saves_at_once_and_the_state_goes_on_from_there():
    saved = []
    search = Counting(SPACE)
    with pytest.raises(Interrupted):
        search.run(save=lambda state, step: saved.append(state), stop=lambda: search.position == 3)
    assert [state["position"] for state in saved] == [2, 3]
    other = Counting(SPACE)
    other.load_state_dict(saved[-1])
    assert other.run() == {"counted": 6}
    assert other.history == [{"at": 2}, {"at": 4}, {"at": 6}]


def test_a_stop_at_the_very_end_is_no_interruption():
    search = Counting(SPACE)
    assert search.run(stop=lambda: search.position == 6) == {"counted": 6}


class Table:
    def look_up(self, architecture, dataset):
        if architecture["0->1"] == "none":
            raise BenchmarkError("not in this part of the table")
        return TableEntry(dataset, 90.0, 80.0, 1, 5, 0.0)


def test_an_architecture_is_described_with_its_standing():
    search = Counting(SPACE, look_up=TableLookup((Table(), "digits")))
    described = search.describe(SPACE.parse("|skip_connect~0|"))
    assert described["architecture"] == {"0->1": "skip_connect"}
    assert described["text"] == "|skip_connect~0|"
    assert (described["standing"]["dataset"], described["standing"]["test"]) == ("digits", 90.0)


def test_without_a_table_or_outside_of_it_there_is_no_standing():
    assert TableLookup()(SPACE.parse("|skip_connect~0|")) is None
    assert TableLookup((Table(), "digits"))(SPACE.parse("|none~0|")) is None
