"""Numbers in words and tables."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from archloom.objectives import Cost
from archloom.reports.tables import (
    UNKNOWN,
    Column,
    cost_facts,
    decimal,
    duration,
    metric_columns,
    percent,
    record_table,
    settings_tables,
    timing_facts,
    version_table,
    whole,
)
from search_runs import RUN


def test_numbers_are_written_with_thousands_and_units() -> None:
    assert whole(802426) == "802,426"
    assert decimal(93.104, unit=" %") == "93.10 %"
    assert percent(0.33) == "33.00 %"


@pytest.mark.parametrize("write", [whole, decimal, percent, duration])
@pytest.mark.parametrize("value", [None, math.nan, "x"])
def test_what_is_not_known_is_a_dash(write: Any, value: object) -> None:
    assert write(value) == UNKNOWN


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "12 ms"), (3.14, "3.1 s"), (61, "1 min 1 s"), (119.7, "2 min 0 s"), (3725, "1 h 2 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_costs_are_facts() -> None:
    assert cost_facts(Cost(1000, 20)) == [("Parameters", "1,000"), ("Multiply-adds", "20")]
    assert cost_facts(None) == []


def test_timing_comes_from_the_run_and_otherwise_from_its_records() -> None:
    series: dict[str, Any] = {"seconds": [2.0, 4.0], "speeds": [100.0, math.nan], "memory_mb": [10.0, math.nan]}
    facts = dict(timing_facts("epoch", 2, **series, run=replace(RUN, peak_memory_mb=5.0)))
    assert facts["Time of all epochs"] == "1 min 1 s"
    assert facts["Mean time per epoch"] == "3.0 s"
    assert facts["Images per second, mean"] == "100"
    assert facts["Peak memory"] == "10 MB"
    assert facts["Device"] == "cpu"
    moment = dict(timing_facts("epoch", 2, **series, run=replace(RUN, finished="2026-11-19T21:35:20+00:00")))[
        "Finished"
    ]
    assert moment == "2026-11-19 21:35:20 UTC"  # a line may break at blanks
    assert dict(timing_facts("epoch", 2, **series, run=None))["Time of all epochs"] == "6.0 s"


def test_timing_of_nothing_is_unknown() -> None:
    facts = dict(timing_facts("trial", 0, seconds=[], speeds=[], memory_mb=[], run=None))
    assert facts["Time of all trials"] == facts["Peak memory"] == UNKNOWN
    assert facts["Records (trials)"] == "0"


def test_versions_have_a_row_each() -> None:
    assert ("torch", "2.13.0") in version_table(RUN).rows
    assert version_table(None).rows == ()


def test_settings_have_a_table_per_section_and_dotted_names_below() -> None:
    tables = settings_tables(
        {"space": {"name": "nb201", "operations": ["a", "b"], "deep": {"x": 1.5}}, "seed": 0, "empty": {}}
    )
    assert [table.heading for table in tables] == ["general", "space"]
    assert tables[0].rows == (("seed", "0"),)
    assert tables[1].rows == (("name", "nb201"), ("operations", "a, b"), ("deep.x", "1.5"))


def test_settings_are_written_as_a_configuration_writes_them() -> None:
    values = {"flag": True, "off": False, "nothing": None, "blank": "", "none": [], "zero": 0, "mapping": {}}
    rows = dict(settings_tables({"section": values})[0].rows)
    assert rows["flag"] == "true"
    assert rows["off"] == "false"
    assert rows["zero"] == "0"
    assert rows["nothing"] == rows["blank"] == rows["none"] == rows["mapping"] == UNKNOWN


def test_columns_without_values_are_left_out() -> None:
    columns = [Column("epoch", [0, 1], whole), *metric_columns({"valid_loss": [1.23456, math.nan]})]
    table = record_table("Every epoch", [*columns, Column("rank", [None, None], whole)])
    assert table.columns == ("epoch", "valid loss")
    assert table.rows == (("0", "1.235"), ("1", UNKNOWN))
    assert table.heading == "Every epoch"
