"""The picture of the README: drawn from measured runs alone, and plainly empty without any. Input here is invented."""

from __future__ import annotations

import csv
import importlib
import json
import re
import shutil
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from archloom.searches.records import FinalistRecord, read_record
from archloom.spaces import Architecture

ROOT = Path(__file__).resolve().parents[2]
STORED = ROOT / "tests" / "data_files" / "first_edition"
HEADER = "row,seed,minutes,test_accuracy\n"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("quality_figure")
    monkeypatch.setattr(module, "SOURCE", tmp_path / "quality.csv")
    monkeypatch.setattr(module, "PICTURE", tmp_path / "quality.svg")
    return module


def note(name: str, steps: int, loss: float, repeat: int = 0) -> FinalistRecord:
    return FinalistRecord("", Architecture({"edge": name}), steps, loss, 0.5, 1, repeat=repeat, seconds=2.0)


def test_without_runs_the_picture_says_so(script: ModuleType) -> None:
    script.SOURCE.write_text(HEADER)
    script.main([])
    assert "not measured yet" in script.PICTURE.read_text()


def test_lines_have_the_mean_and_the_spread_of_their_seeds(script: ModuleType) -> None:
    lines = ["gibbs,0,2,90.0", "gibbs,0,10,94.0", "gibbs,1,4,92.0", "gibbs,1,9,93.0", "random,0,1,80", "random,0,8,91"]
    script.SOURCE.write_text(HEADER + "\n".join(lines) + "\nlimit,0,1,50\n")
    points = script.read_points(script.SOURCE)
    moments = script.average(script.split_seeds([one for one in points if one.row == "gibbs"]))
    assert moments[0] == (4.0, 91.0, 90.0, 92.0)  # from when every seed has a network
    assert moments[-1] == (10.0, 93.5, 93.0, 94.0)
    script.main([])
    drawn = script.PICTURE.read_text()
    assert drawn.startswith("<svg") and "xmlns=" in drawn.split(">")[0] and "minutes of processor time" in drawn
    assert "search and race (default), 2 seeds" in drawn and "random search, 1 seed" in drawn
    assert drawn.count("stroke-dasharray") >= 2  # a line and its legend: lines differ by more than colour


def test_ends_of_searches_are_dots(script: ModuleType, tmp_path: Path) -> None:
    ends = tmp_path / "own-data.csv"
    ends.write_text(
        "row,seed,minutes,rank,test_accuracy,text\ngibbs,60,8.6,229,93.69,|a~0|\nno_search,60,9.4,7,94.3,x\n"
    )
    script.main(["--csv", str(ends), "--out", str(tmp_path / "dots.svg")])
    drawn = (tmp_path / "dots.svg").read_text()
    assert "search and race (default), 1 seed" in drawn and "race alone, 1 seed" in drawn


def test_the_longest_trainings_lead_and_the_first_round_is_forgotten(script: ModuleType) -> None:
    notes = [note("a", 10, 1.0), note("b", 10, 0.5), note("c", 10, 0.7)]
    assert script.lead(notes, 0.3) == Architecture({"edge": "b"})
    later = [*notes, note("b", 30, 0.4), note("c", 30, 0.3)]
    assert script.lead(later, 0.3) == Architecture({"edge": "c"})
    assert script.lead([*later, note("b", 60, 0.2), note("c", 60, 0.6)], 0.3) == Architecture({"edge": "b"})


def test_a_search_is_traced_from_its_records_to_its_result(script: ModuleType) -> None:
    values = [json.loads(line) for line in (STORED / "search_random" / "metrics.jsonl").read_text().splitlines()]
    trials = [read_record({**value, "seconds": 1.0}) for value in values]
    leaders = list(script.find_leaders(trials, [note("a", 10, 1.0)], 0.3))
    scores = [trial.score for trial in trials]
    rising = [place for place, score in enumerate(scores) if score > max(scores[:place], default=0.0)]
    assert [seconds for seconds, _ in leaders] == [place + 1.0 for place in rising] + [len(trials) + 2.0]
    accuracies = {"a": 90.0, "b": 91.0}
    found = script.trace("gibbs", 3, [(1.0, "a"), (2.0, "a"), (4.0, "b")], "a", 10.0, accuracies.__getitem__)
    assert [(one.minutes, one.test_accuracy) for one in found] == [(2.5, 90.0), (10.0, 91.0), (10.0, 90.0)]


def test_a_run_folder_is_read(script: ModuleType, tmp_path: Path) -> None:
    place = tmp_path / "runs" / "gibbs-60"
    shutil.copytree(STORED / "search_gibbs", place)
    place.with_suffix(".seconds").write_text("600.0\n")
    path = place / "architecture.json"
    result = json.loads(path.read_text())
    result["table_entry"] = {**(result.get("table_entry") or result["standing"])}
    path.write_text(json.dumps(result))
    looked: list[Any] = []

    def look_up(architecture: Any, dataset: str) -> Any:
        looked.append(dataset)
        return SimpleNamespace(test=80.0 + len(looked))

    points = script.read_folder(place, SimpleNamespace(look_up=look_up))
    assert {(one.row, one.seed) for one in points} == {("gibbs", 60)} and set(looked) == {"digits"}
    assert points[-1].minutes == 10.0 and [one.minutes for one in points] == sorted(one.minutes for one in points)


def test_a_damaged_file_is_one_line(script: ModuleType) -> None:
    script.SOURCE.write_text("strategy,seed\ngibbs,0\n")
    with pytest.raises(SystemExit, match="must have the columns row, seed, minutes, test_accuracy"):
        script.main([])


def test_the_shipped_picture_is_that_of_the_shipped_runs(script: ModuleType) -> None:
    source = ROOT / "docs" / "results" / "quality.csv"
    drawn = (ROOT / "docs" / "images" / "quality.svg").read_text()
    assert source.read_text().startswith(HEADER)
    points = script.read_points(source)
    assert ("not measured yet" in drawn) == (not points)
    assert all(script.ROWS[one.row] in drawn for one in points)
    script.main(["--csv", str(source), "--out", str(script.PICTURE)])
    assert re.findall(r"<text[^>]*>([^<]+)", script.PICTURE.read_text()) == re.findall(r"<text[^>]*>([^<]+)", drawn)


def test_the_shipped_runs_are_those_of_the_results(script: ModuleType) -> None:
    points = script.read_points(ROOT / "docs" / "results" / "quality.csv")
    with (ROOT / "docs" / "results" / "own-data-67.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    ends = {(row["row"], int(row["seed"])): float(row["test_accuracy"]) for row in rows}
    for row in script.ROWS:
        for own in script.split_seeds([one for one in points if one.row == row]):
            assert own[-1].test_accuracy == ends[row, own[-1].seed]
    assert {float(row["test_accuracy"]) for row in rows if row["rank"] == "1"} == {script.BEST[0]}


def test_a_seed_with_an_end_alone_is_a_dot_beside_the_line(script: ModuleType, monkeypatch: Any) -> None:
    lines = ["gibbs,0,2,90.0", "gibbs,0,10,94.0", "gibbs,1,9,93.0"]
    script.SOURCE.write_text(HEADER + "\n".join(lines))
    averaged: list[int] = []
    average = script.average
    monkeypatch.setattr(script, "average", lambda traced: averaged.append(len(traced)) or average(traced))
    script.main([])
    assert averaged == [1] and "search and race (default), 2 seeds" in script.PICTURE.read_text()


def test_letters_are_readable_on_a_telephone(script: ModuleType) -> None:
    """At 350 pixels the smallest letters have at least 7."""
    drawn = (ROOT / "docs" / "images" / "quality.svg").read_text()
    assert ElementTree.fromstring(drawn).get("width") == "640"  # a browser shows nothing of a file that is no XML
    width = float(drawn.partition('viewBox="')[2].split('"')[0].split()[2])
    sizes = {float(size) for size in re.findall(r'font(?:-size)?="[^"]*?([\d.]+)px', drawn)}
    assert sizes and min(sizes) * 350 / width >= 7
