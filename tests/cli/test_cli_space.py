"""`archloom space describe`: what is printed and written, without torch."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from archloom.spaces import SPACES

Archloom = Callable[..., Any]


@pytest.mark.parametrize("name", SPACES)
def test_every_space_is_described(archloom: Archloom, name: str) -> None:
    finished = archloom("space", "describe", name)
    assert finished.code == 0
    assert finished.out.startswith(f"{name}: ")
    assert "architectures" in finished.out
    assert ("no table of known scores" in finished.err) is (name != "nb201_mini")


def test_a_small_space_with_its_embedded_table(archloom: Archloom) -> None:
    said = archloom("space", "describe", "nb201_mini").out
    assert "nb201_mini: 125 architectures, 60 of them distinct up to isomorphism" in said
    assert "test accuracy on strokes after 10 epochs" in said
    assert "strokes valid, 10 epochs | strokes test, 10 epochs" in said
    assert "Pareto" not in said


def test_the_data_set_chooses_the_table(archloom: Archloom) -> None:
    said = archloom("space", "describe", "nb201_mini", "--data", "digits").out
    assert "test accuracy on digits after 12 epochs" in said
    assert "within 1 point of the best: 34 of 125 (27.20 %)" in said


def test_no_torch_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom archloom.cli.main import run\n"
        "try:\n    run(['space', 'describe', 'nb201_mini', '--latency-table', 'own.csv', '--out', 'front.svg'])\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "assert 'torch' not in sys.modules and 'scipy' not in sys.modules"
    )
    (tmp_path / "own.csv").write_text("0,1\n60,2\n124,3\n")
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "front.svg").is_file()


def test_own_latencies_give_a_front_and_files(archloom: Archloom, digits_table: Path) -> None:
    Path("own.csv").write_text("cell,ms\n10,1.5\n20,1.0\n30,2.5\n")  # row n of this table scores n/2
    files = ("--out", "front.svg", "--out", "front.csv", "--out", "all.json")
    finished = archloom("space", "describe", "nb201_mini", "--data", "digits", "--latency-table", "own.csv", *files)
    assert finished.code == 0
    assert "Pareto front of accuracy against latency by own.csv, ms: 2 of 3 architectures" in finished.out
    rows = list(csv.reader(Path("front.csv").read_text().splitlines()))
    assert rows[0] == ["architecture", "latency by own.csv, ms", "test accuracy, %"]
    assert [(row[1], row[2]) for row in rows[1:]] == [("1.0", "10.0"), ("2.5", "15.0")]
    figures = json.loads(Path("all.json").read_text())
    assert [row["cost"] for row in figures["front"]["architectures"]] == [1.0, 2.5]
    assert figures["accuracy"]["quantiles"]["1"] == 62
    text = "".join(ElementTree.parse("front.svg").getroot().itertext())
    assert "3 architectures" in text and "Pareto front: 2" in text


def test_a_device_of_the_published_table(archloom: Archloom, nb201_dir: Path) -> None:
    finished = archloom("space", "describe", "nb201", "--data-dir", nb201_dir, "--device", "pixel3")
    assert finished.code == 0
    assert "nb201: 15,625 architectures, 6,466 of them distinct" in finished.out
    assert "Pareto front of accuracy against latency on pixel3, ms: 43 of 15,625 architectures" in finished.out
    assert all(len(line) <= 130 for line in finished.out.splitlines())
    other = archloom("space", "describe", "nb201", "--data-dir", nb201_dir, "--data", "cifar100")
    assert "test accuracy on cifar100 after 200 epochs" in other.out
    assert "Pareto front of accuracy against FLOPs, millions" in other.out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nb202"], "unknown space 'nb202'; did you mean 'nb201'?"),
        (["nb201_mini", "--data", "cifar10"], "the strokes table has no data set 'cifar10'; known: strokes"),
        (["nb201_mini", "--device", "pixel3"], "the strokes table knows no latencies, asked for 'pixel3'"),
        (["nb201_mini", "--latency-table", "no.csv"], "cannot read no.csv: No such file or directory"),
        (["nb201_mini", "--device", "a", "--latency-table", "b"], "--device and --latency-table both say what latency"),
        (["nb201_mini", "--out", "front.svg"], "the strokes table knows no costs to set accuracy against"),
        (["nb201_mini", "--out", "front.png"], "--out must end in .svg or .csv or .json, got 'front.png'"),
        (["darts", "--device", "pixel3"], "no table of known scores for space 'darts' is at hand"),
    ],
)
def test_what_cannot_be_told_is_one_line(archloom: Archloom, arguments: list[str], line: str) -> None:
    finished = archloom("space", "describe", *arguments)
    assert (finished.code, len(finished.lines), finished.out) == (2, 1, "")
    assert line in finished.err
