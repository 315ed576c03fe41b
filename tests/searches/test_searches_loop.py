from __future__ import annotations

from archloom.benchmarks.base import TableEntry
from archloom.core.errors import BenchmarkError
from archloom.searches.loop import SearchLoop, TableLookup
from archloom.spaces import Nb201

SPACE = Nb201(nodes=2)


class Table:
    def look_up(self, architecture, dataset):
        if architecture["0->1"] == "none":
            raise BenchmarkError("not in this part of the table")
        return TableEntry(dataset, 90.0, 80.0, 1, 5, 0.0)


class Idle(SearchLoop):
    total = 0

    def advance(self):
        return None

    def conclude(self):
        return {}

    def read_record(self, value):
        return value


def test_an_architecture_is_described_with_its_table_entry():
    loop = Idle(SPACE, look_up=TableLookup((Table(), "digits")))
    described = loop.describe(SPACE.parse("|skip_connect~0|"))
    assert dict(described["architecture"]) == {"0->1": "skip_connect"}
    assert described["text"] == "|skip_connect~0|"
    assert (described["table_entry"].dataset, described["table_entry"].test) == ("digits", 90.0)


def test_without_a_table_or_outside_of_it_there_is_no_entry():
    assert TableLookup()(SPACE.parse("|skip_connect~0|")) is None
    assert TableLookup((Table(), "digits"))(SPACE.parse("|none~0|")) is None
