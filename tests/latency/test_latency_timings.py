"""Files of timings: exact, of one setup, and checked when read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from archloom.core.errors import DataError, SettingError
from archloom.latency.timings import Timings, read_timings, timings_path, write_timings
from archloom.objectives.cost_model_file import TimingSetup

SETUP = TimingSetup(
    space="nb201",
    space_settings={"operations": ("none", "skip")},
    classes=10,
    image_shape=(3, 8, 8),
    batch=1,
    network={},
    device="cpu",
    threads=1,
    repeats=30,
    seed=0,
    versions={},
)


def test_timings_are_read_back_exactly(tmp_path: Path) -> None:
    path = timings_path(tmp_path / "here.json")
    assert path.name == "here.timings.json"
    assert read_timings(path, SETUP) == Timings()
    timings = Timings([1 / 3, 0.1 + 0.2], [1e-3 / 7, 2e-3 / 3])
    write_timings(path, timings, SETUP)
    assert read_timings(path, SETUP) == timings


def test_timings_of_another_setup_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "here.timings.json"
    write_timings(path, Timings([1.0], [1.0]), SETUP)
    with pytest.raises(SettingError, match=r"was timed with another repeats, threads; remove it, or choose another"):
        read_timings(path, replace(SETUP, threads=2, repeats=40))


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
def test_file_without_timings_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.timings.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"bad.timings.json holds no timings of archloom latency fit"):
        read_timings(path, SETUP)
