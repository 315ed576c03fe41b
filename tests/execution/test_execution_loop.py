from __future__ import annotations

from dataclasses import dataclass

import pytest

from archloom.core.events import Recorded, Started
from archloom.execution.loop import Interrupted, Loop


@dataclass(frozen=True)
class Count:
    at: int

    def to_json(self):
        return {"at": self.at}


class Counting(Loop):
    """Counts to six, with a record for every second unit."""

    unit = "step"
    total = 6
    units_per_record = 2

    def advance(self):
        self.position += 1
        return Count(self.position) if self.position % 2 == 0 else None

    def conclude(self):
        return {"counted": self.position}

    def read_record(self, value):
        return Count(value["at"])


def test_runs_to_the_end_and_emits_every_record():
    events = []
    loop = Counting(listeners=[events.append])
    assert loop.run() == {"counted": 6}
    assert events == [Started("step", 0, 6, 2, ()), *(Recorded(Count(at)) for at in (2, 4, 6))]
    assert loop.history == [Count(2), Count(4), Count(6)]


def test_state_is_saved_with_every_record():
    saved = []
    Counting().run(save=lambda state, step: saved.append((step, state)))
    assert [step for step, _ in saved] == [2, 4, 6]
    assert saved[1][1] == {"position": 4, "history": [{"at": 2}, {"at": 4}]}


def test_a_stop_saves_at_once_and_the_state_resumes_from_there():
    saved = []
    loop = Counting()
    with pytest.raises(Interrupted):
        loop.run(save=lambda state, step: saved.append(state), stop=lambda: loop.position == 3)
    assert [state["position"] for state in saved] == [2, 3]
    other = Counting()
    other.load_state_dict(saved[-1])
    assert other.run() == {"counted": 6}
    assert other.history == [Count(2), Count(4), Count(6)]


def test_a_stop_at_the_very_end_is_no_interruption():
    loop = Counting()
    assert loop.run(stop=lambda: loop.position == 6) == {"counted": 6}


def test_a_state_has_no_more_units_than_the_loop():
    loop = Counting()
    loop.position = 2
    loop.refuse_more_units(2)
    loop.refuse_more_units(6)
    for units in (1, 7, 10**18):
        with pytest.raises(ValueError, match=r"the units must lie in 2\.\.6, got"):
            loop.refuse_more_units(units)


def test_a_position_before_the_beginning_is_refused():
    with pytest.raises(ValueError, match="position must be 0 or more, got -1"):
        Counting().load_state_dict({"position": -1, "history": []})
