from __future__ import annotations

from pathlib import Path

import pytest

from archloom.benchmarks import find_benchmark, open_benchmark
from archloom.benchmarks.csv_table import CsvTable
from archloom.core.errors import BenchmarkError
from archloom.spaces import SPACES, Nb201

SPACE = Nb201(**SPACES["nb201_mini"].settings)
ALL = list(SPACE.enumerate())[:4]


def write(path: Path, header: str = "architecture,test,valid", scores: str = "90,80;91,79;70,60;91,85") -> Path:
    rows = [f"{SPACE.format(one)},{score}" for one, score in zip(ALL, scores.split(";"), strict=False)]
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_scores_ranks_and_regret_come_from_the_file(tmp_path: Path) -> None:
    table = CsvTable(write(tmp_path / "mine.csv"), SPACE, "pets")
    entry = table.look_up(ALL[0], "pets")
    assert (entry.test, entry.valid, entry.rank, entry.count, entry.regret) == (90.0, 80.0, 3, 4, 1.0)
    assert table.query(ALL[3], "pets", metric="valid") == 85.0
    assert [table.row(table.architecture(row)) for row in range(4)] == [0, 1, 2, 3]
    assert table.best("pets") == (ALL[1], 91.0)


def test_a_table_may_have_test_scores_only(tmp_path: Path) -> None:
    table = CsvTable(write(tmp_path / "mine.csv", "architecture,test", "90;91;70;91"), SPACE, "pets")
    assert table.metrics == ("test",)
    assert table.look_up(ALL[2], "pets").valid is None
    assert CsvTable.metrics == ("test", "valid")  # of all others


def test_an_architecture_that_is_not_there_is_named(tmp_path: Path) -> None:
    table = CsvTable(write(tmp_path / "mine.csv"), SPACE, "pets")
    missing = list(SPACE.enumerate())[-1]
    with pytest.raises(BenchmarkError, match="has no row for "):
        table.row(missing)


@pytest.mark.parametrize(
    ("header", "scores", "reason"),
    [
        ("cell,test", "90", "must have the columns architecture and test"),
        ("architecture,test", "good", "line 2 of .*: test must be a percentage, got 'good'"),
        ("architecture,test", "101", "test must be a percentage, got '101'"),
        ("architecture,test", "nan", "test must be a percentage, got 'nan'"),
        ("architecture,test,valid", "90", "valid must be a percentage, got 'None'"),
        ("architecture,test", "", "must be a percentage"),
    ],
)
def test_damage_is_one_line_with_its_place(tmp_path: Path, header: str, scores: str, reason: str) -> None:
    with pytest.raises(BenchmarkError, match=reason):
        CsvTable(write(tmp_path / "mine.csv", header, scores), SPACE, "pets")


def test_other_damage_is_found(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.csv")
    path.write_text(path.read_text() + f"{SPACE.format(ALL[0])},1,1\n")
    with pytest.raises(BenchmarkError, match=r"line 6 .* repeats the architecture"):
        CsvTable(path, SPACE, "pets")
    path.write_text("architecture,test\nnothing,3\n")
    with pytest.raises(BenchmarkError, match=r"line 2 of .*NB201 string"):
        CsvTable(path, SPACE, "pets")
    path.write_text("architecture,test\n")
    with pytest.raises(BenchmarkError, match="must have a row per architecture, got none"):
        CsvTable(path, SPACE, "pets")
    with pytest.raises(BenchmarkError, match="is not a readable CSV file"):
        CsvTable(tmp_path / "missing.csv", SPACE, "pets")


def test_a_table_is_named_like_everything_else(tmp_path: Path) -> None:
    table, dataset = open_benchmark(str(write(tmp_path / "mine.csv")), SPACE, "pets")
    assert isinstance(table, CsvTable) and dataset == "pets"
    found = find_benchmark(SPACE, "pets", named="strokes")
    assert found is not None and (found[0].name, found[1]) == ("strokes", "strokes")
    found = find_benchmark(SPACE, "digits", named="archloom.benchmarks.digits:DigitsTable")
    assert found is not None and found[1] == "digits"
    with pytest.raises(BenchmarkError, match=r"search.table 'strokes' must cover the space"):
        open_benchmark("strokes", Nb201(nodes=4), "strokes")
