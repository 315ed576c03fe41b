"""`archloom draw`: text without --out, SVG with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Archloom = Callable[..., Any]
TEXT = "|nor_conv_3x3~0|+|none~0|skip_connect~1|"


def test_a_cell_is_printed_as_text(archloom: Archloom) -> None:
    finished = archloom("draw", TEXT, "--space", "nb201_mini")
    assert (finished.code, finished.err) == (0, "")
    assert finished.out.splitlines() == [
        "cell:",
        "  node 1 = nor_conv_3x3(input)",
        "  node 2 = skip_connect(node 1)",
        "  output = node 2",
    ]


def test_a_picture_of_a_run_is_written(archloom: Archloom, finished_run: Path, tmp_path: Path) -> None:
    finished = archloom("draw", finished_run, "--out", "cell.svg")
    assert (finished.code, finished.out) == (0, "cell.svg\n")
    assert (tmp_path / "cell.svg").read_text().startswith("<svg ")


def test_bad_input_is_a_line(archloom: Archloom, tmp_path: Path) -> None:
    def error(*arguments: str) -> str:
        finished = archloom("draw", *arguments)
        assert finished.code == 2
        assert len(finished.lines) == 1
        return str(finished.lines[0])

    assert error(TEXT, "--out", "cell.png") == "error: --out must end in .svg, got 'cell.png'"
    assert not (tmp_path / "cell.png").exists()
    assert error(TEXT).startswith("error: an NB201 string of this space has 3 groups")
    assert error(TEXT, "--space", "nb201_min") == "error: unknown space 'nb201_min'; did you mean 'nb201_mini'?"
    written = error(TEXT, "--space", "nb201_mini", "--out", "nowhere/cell.svg")
    assert written == "error: cannot write nowhere/cell.svg: No such file or directory"
