"""Timed networks in a file: come back as they were, belong to one way of timing, and are checked when read."""

from __future__ import annotations

from pathlib import Path

import pytest

from archloom.core.errors import DataError, SettingError
from archloom.latency.fit import Timings
from archloom.latency.timings_file import read_timings, timings_path, write_timings

ABOUT = {"space": "nb201", "image_shape": (3, 8, 8), "threads": 1}


def test_timings_come_back_to_the_bit(tmp_path: Path) -> None:
    path = timings_path(tmp_path / "here.json")
    assert path.name == "here.timings.json"
    assert read_timings(path, ABOUT) == Timings()
    timings = Timings([1 / 3, 0.1 + 0.2], [1e-3 / 7, 2e-3 / 3])
    write_timings(path, timings, ABOUT)
    assert read_timings(path, ABOUT) == timings


def test_timings_of_another_kind_are_not_mixed_in(tmp_path: Path) -> None:
    path = tmp_path / "here.timings.json"
    write_timings(path, Timings([1.0], [1.0]), ABOUT)
    with pytest.raises(SettingError, match=r"was timed with another repeats, threads; remove it, or choose another"):
        read_timings(path, {**ABOUT, "threads": 2, "repeats": 40})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"kind": "archloom timings", "ratios": [1.0], "constants": [], "about": {}}',
        '{"kind": 3}',
        '{"kind": "archloom timings", "ratios": ["x"]}',
    ],
)
def test_a_file_that_holds_none_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.timings.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"bad.timings.json holds no timings of archloom latency fit"):
        read_timings(path, ABOUT)
