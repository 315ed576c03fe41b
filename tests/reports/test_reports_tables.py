"""Numbers in words and tables."""

from __future__ import annotations

import math
from typing import Any

import pytest

from archloom.reports.tables import (
    UNKNOWN,
    cost_facts,
    decimal,
    duration,
    percent,
    record_table,
    settings_tables,
    standing_facts,
    standing_sentence,
    timing_facts,
    whole,
)

STANDING = {"dataset": "cifar10", "test": 93.1, "valid": 90.2, "rank": 120, "count": 15625, "regret": 1.27}


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


def test_a_standing_in_plain_words() -> None:
    assert standing_sentence(STANDING) == (
        "Trained alone, it reaches 93.10 % on the test images of cifar10, rank 120 of 15,625, ahead of 99.2 %, "
        "1.27 points below the best."
    )


def test_the_best_of_a_table_is_called_so() -> None:
    sentence = standing_sentence({**STANDING, "rank": 1, "regret": 0.0})
    assert "the best of the 15,625 architectures in the table" in sentence
    assert "below" not in sentence


@pytest.mark.parametrize("hole", [{"rank": None}, {"count": 0}, {"count": None}, {"regret": math.nan}])
def test_a_standing_with_holes_still_makes_a_sentence(hole: dict[str, object]) -> None:
    sentence = standing_sentence({**STANDING, **hole})
    assert sentence.startswith("Trained alone, it reaches 93.10 %")
    assert "nan" not in sentence
    assert ("rank" in sentence) == ("regret" in hole)


def test_facts_of_a_standing() -> None:
    facts = dict(standing_facts(STANDING))
    assert facts["Rank"] == "120 of 15,625"
    assert facts["Regret (points below the best)"] == "1.27"


def test_costs_name_only_what_is_known() -> None:
    assert cost_facts({"parameters": 1000}) == [("Parameters", "1,000")]
    assert cost_facts(None) == []


def test_timing_comes_from_the_run_and_else_from_its_records() -> None:
    history = [{"seconds": 2.0, "images_per_second": 100.0, "memory_mb": 10.0}, {"seconds": 4.0, "memory_mb": None}]
    facts = dict(timing_facts(history, {"seconds": 61.0, "peak_memory_mb": 5.0, "device": "cpu"}))
    assert facts["Total time"] == "1 min 1 s"
    assert facts["Mean time per epoch"] == "3.0 s"
    assert facts["Images per second, mean"] == "100"
    assert facts["Peak memory"] == "10 MB"
    assert facts["Device"] == "cpu"
    assert dict(timing_facts(history, None))["Total time"] == "6.0 s"


def test_timing_of_nothing_is_unknown() -> None:
    facts = dict(timing_facts([], None))
    assert facts["Total time"] == facts["Peak memory"] == UNKNOWN


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


def test_records_make_rows_without_empty_columns() -> None:
    table = record_table([{"epoch": 0, "metrics": {"loss": 1.23456}}, {"epoch": 1, "metrics": {"loss": None}}])
    assert table.columns == ("epoch", "loss")
    assert table.rows == (("0", "1.235"), ("1", UNKNOWN))
    assert table.heading == "Every epoch"


def test_trials_make_rows_too(make_trials: Any) -> None:
    table = record_table(make_trials(trials=3).history)
    assert table.heading == "Every trial"
    assert table.columns == ("trial", "seconds", "score", "best", "table test, %", "rank")
    assert len(table.rows) == 3
