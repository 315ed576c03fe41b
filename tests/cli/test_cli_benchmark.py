"""`archloom benchmark`: what tables say, and how they are made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Archloom = Callable[..., Any]
BEST = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"


def row(text: str, name: str) -> list[str]:
    """The cells of the row of this name."""
    return next(line.removeprefix(name).split() for line in text.splitlines() if line.startswith(name))


def test_everything_known_of_an_architecture_is_printed(archloom: Archloom, nb201_dir: Path) -> None:
    finished = archloom("benchmark", "query", BEST, "--data-dir", nb201_dir, "--device", "pixel3")
    assert (finished.code, finished.err) == (0, "")
    assert finished.out.splitlines()[0] == BEST
    assert row(finished.out, "test accuracy, %, 200 epochs") == ["94.36", "73.51", "46.34"]
    assert row(finished.out, "valid accuracy, %, 12 epochs") == ["84.75", "60.28", "37.63"]
    assert row(finished.out, "parameters") == ["1,288,506", "1,294,356", "1,295,656"]
    assert row(finished.out, "rank by test") == ["3", "of", "15,625", "1", "of", "15,625", "26", "of", "15,625"]
    assert row(finished.out, "regret, points") == ["0.01", "0.00", "0.97"]
    assert row(finished.out, "latency on pixel3:") == ["35.033", "ms"]


def test_the_packaged_table_needs_no_folder(archloom: Archloom, digits_table: Path, finished_run: Path) -> None:
    finished = archloom("benchmark", "query", "|none~0|+|none~0|skip_connect~1|", "--table", "digits")
    assert finished.code == 0
    assert row(finished.out, "test accuracy, %, 30 epochs") == ["0.50"]
    assert row(finished.out, "rank by test") == ["124", "of", "125"]
    assert archloom("benchmark", "query", finished_run, "--table", "digits").code == 0


def test_the_best_are_listed_best_first(archloom: Archloom, digits_table: Path) -> None:
    finished = archloom("benchmark", "top", "--table", "digits", "--count", "2")
    assert finished.out.splitlines() == [
        " 62.00 %  |avg_pool_3x3~0|+|avg_pool_3x3~0|avg_pool_3x3~1|",
        " 61.50 %  |avg_pool_3x3~0|+|avg_pool_3x3~0|nor_conv_3x3~1|",
    ]


def test_the_data_set_may_be_named(archloom: Archloom, nb201_dir: Path) -> None:
    finished = archloom("benchmark", "top", "--dataset", "cifar100", "--count", "1", "--data-dir", nb201_dir)
    assert finished.out == f" 73.51 %  {BEST}\n"


def test_published_records_are_converted(archloom: Archloom, nb201_dir: Path, tmp_path: Path) -> None:
    finished = archloom("benchmark", "convert", nb201_dir / "official_samples", "made", "--partial")
    assert (finished.code, finished.out) == (0, "made/nasbench201_compact.npz\n")
    shown = archloom("benchmark", "top", "--data-dir", "made", "--count", "5")
    assert len(shown.out.splitlines()) == 3


def test_bad_input_is_a_line(archloom: Archloom, digits_table: Path) -> None:
    def error(*arguments: str) -> str:
        finished = archloom("benchmark", *arguments)
        assert finished.code == 2
        assert len(finished.lines) == 1
        return str(finished.lines[0])

    assert error("top").startswith("error: no nb201 table in $ARCHLOOM_DATA; pass --data-dir")
    assert error("top", "--data-dir", "nowhere").startswith("error: no nb201 table in nowhere; ")
    assert error("top", "--table", "nb202") == "error: unknown benchmark 'nb202'; did you mean 'nb201'?"
    assert "no data set 'cifar10'" in error("top", "--table", "digits", "--dataset", "cifar10")
    assert error("query", "x", "--table", "digits").startswith("error: an NB201 string of this space has 2 groups")
    assert "knows no latencies" in error("query", "|none~0|+|none~0|none~1|", "--table", "digits", "--device", "pixel3")
    assert error("convert", "nowhere", "made") == "error: nowhere does not exist"
