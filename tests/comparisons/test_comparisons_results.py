"""The result of a comparison: written and read back, also from the first edition, and shown to users."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from archloom.comparisons.entries import EntryResult, SeedResult
from archloom.comparisons.report import render_files
from archloom.comparisons.results import ComparisonResult
from archloom.comparisons.spec import Published
from archloom.comparisons.statistics import Verdict
from archloom.core.errors import ArchloomError, CheckpointError, StorageError

FIRST_EDITION = Path(__file__).parents[1] / "data_files" / "first_edition" / "comparison"
TABLE = "test accuracy in the digits table"


def seed_result(seed: int, value: float, **changes: Any) -> SeedResult:
    return replace(SeedResult(seed, f"cell {seed}", value, {"digits": value}, 95.0 - value, 2.0, 0.0), **changes)


RANDOM = tuple(seed_result(seed, 90.0 + seed, trainings=10.0) for seed in range(2))
GDAS = (seed_result(0, 94.0, curve=(80.0, 94.0)),)
RESULT = ComparisonResult(
    title="<b>Mine",
    entries=(
        EntryResult("random", "random_search", True, TABLE, ("digits",), RANDOM, 2, "looked up"),
        EntryResult("gdas", "gdas", False, TABLE, ("digits",), GDAS, 2, failures={"gdas-1": "no memory"}),
    ),
    published=(Published("GDAS", {"digits": 93.5}, "a paper"),),
    verdicts={"gdas": Verdict("not tested against random: +3.50 points", 3.5, superiority=1.0)},
    against="random",
)


def write(folder: Path, result: ComparisonResult = RESULT) -> Path:
    (folder / "comparison.json").write_text(render_files(result)["comparison.json"])
    return folder


def test_result_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    assert ComparisonResult.read(write(tmp_path)) == replace(RESULT, folder=tmp_path)
    assert json.loads((tmp_path / "comparison.json").read_text())["version"] == 2


def test_first_edition_file_is_read() -> None:
    result = ComparisonResult.read(FIRST_EDITION)
    gdas, random = result.entries
    assert (gdas.name, gdas.black_box, gdas.datasets, gdas.timing) == ("gdas", False, ("digits",), "unknown")
    assert (random.black_box, random.trainings, result.against) == (True, 6.0, "random_search")
    assert gdas.values == [94.479, 88.0] and gdas.results[0].curve == (93.9722, 94.479)
    assert result.verdicts["gdas"].difference == pytest.approx(38.9015) and list(result.verdicts) == ["gdas"]
    assert set(render_files(result)) >= {"comparison.html", "comparison.csv"}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"entries": 3}'])
def test_damaged_file_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "comparison.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"comparison\.json is damaged") as caught:
        ComparisonResult.read(tmp_path)
    assert "\n" not in str(caught.value)


def test_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text('{"version": 3}')
    with pytest.raises(CheckpointError, match=r"has version 3, expected 2 or less; update archloom"):
        ComparisonResult.read(tmp_path)
    with pytest.raises(StorageError, match="cannot read"):
        ComparisonResult.read(tmp_path / "nowhere")


def test_repr_has_a_line_per_entry() -> None:
    assert repr(replace(RESULT, folder=Path("runs/mine"))).splitlines() == [
        "<b>Mine: 2 entries, 3 finished searches",
        "random (2 runs): 90.50 ± 0.71 digits",
        "gdas (1 of 2, 1 failed runs): 94.00 digits; not tested against random: +3.50 points",
        "folder: runs/mine",
    ]


def test_html_shows_table_verdicts_and_plot_with_everything_escaped() -> None:
    html = RESULT._repr_html_()
    assert "&lt;b&gt;Mine" in html and "<b>" not in html
    for part in ("90.50 ± 0.71", "GDAS (published)", "not tested against random", "<svg"):
        assert part in html
    empty = replace(RESULT, entries=tuple(replace(entry, results=()) for entry in RESULT.entries), verdicts={})
    assert "<svg" not in empty._repr_html_()
    with pytest.raises(ArchloomError, match="needs a finished search"):
        empty.plot()


def test_plot_has_a_line_per_entry() -> None:
    (axes,) = RESULT.plot().axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["random", "gdas"]


def test_frame_has_a_row_per_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    rows = RESULT.to_frame()
    assert [(row["entry"], row["seed"], row["digits"], row["trainings"]) for row in rows] == [
        ("random", 0, 90.0, 10.0),
        ("random", 1, 91.0, 10.0),
        ("gdas", 0, 94.0, 0.0),
    ]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ArchloomError, match="pip install pandas"):
        RESULT.to_frame()
