"""The end of a search: complete, copyable, and clear on what is not known."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from archloom.cli.outcome import print_outcome, table_hint
from archloom.searches.architectures import find_space
from archloom.searches.run import SearchResult
from archloom.spaces import SearchSpace

STANDING = {"dataset": "cifar10", "test": 93.1, "valid": 90.2, "rank": 1234, "count": 15625, "regret": 1.27}


def printed(
    space: SearchSpace,
    *,
    standing: dict[str, Any] | None = None,
    data: str = "cifar10",
    posterior: dict[str, Any] | None = None,
    **others: Any,
) -> str:
    architecture = space.sample(random.Random(0))
    details = {
        "strategy": "gdas",
        "space": {"name": "mine"},
        "data": data,
        "seed": 7,
        "cost": {"parameters": 1234567, "multiply_adds": 89},
        "run": {"seconds": 75.0, "records": 1, "device": "cpu", "peak_memory_mb": 512.4},
        **({} if posterior is None else {"posterior": posterior}),
        **others,
    }
    result = SearchResult(
        architecture=architecture,
        space=space,
        text=space.format(architecture),
        verdict="The verdict of [brackets].",
        standing=standing,
        history=({"epoch": 0},),
        directory=Path("my runs/a"),
        details=details,
    )
    console = Console(file=io.StringIO(), width=80, markup=False, highlight=False)
    print_outcome(result, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_architecture_stands_whole_on_a_line_of_its_own() -> None:
    space = find_space("darts")
    text = space.format(space.sample(random.Random(0)))
    assert len(text) > 200
    assert text in printed(space).splitlines()


def test_everything_is_said_in_80_columns() -> None:
    space = find_space("nb201")
    text = printed(space, standing=STANDING)
    architecture = space.format(space.sample(random.Random(0)))
    assert all(len(line) <= 80 for line in text.splitlines() if line != architecture)
    for part in (
        "gdas on mine, cifar10, seed 7",
        "output = node 3",
        "1,234,567",
        "1 min 15 s for 1 epoch on cpu",
        "512 MB",
        "93.10 %",
        "1,234 of 15,625",
        "The verdict of [brackets].",
        "report: my runs/a/report.html",
        "archloom search 'my runs/a/config.toml' --seed N",
        "archloom retrain 'my runs/a'",
    ):
        assert part in text
    assert "--data-dir" not in text


def test_of_many_cells_some_are_drawn() -> None:
    text = printed(find_space("s2"))
    assert text.count("output = ") == 4
    assert "... and 16 more cells" in text


def test_a_table_that_would_know_is_named() -> None:
    assert "The nb201 table knows" in table_hint(find_space("nb201"), "cifar10")
    assert "--data-dir" in printed(find_space("nb201"))


def test_a_space_with_a_table_at_hand_is_named(digits_table: Path) -> None:
    assert table_hint(find_space("nb201"), "digits").endswith("--space nb201_mini has a table that is there already.")


def test_where_no_table_can_know_none_is_promised() -> None:
    assert table_hint(find_space("darts"), "cifar10") == (
        "No table of known scores covers this space, so that rank and regret are not known."
    )


@pytest.mark.parametrize("standing", [None, STANDING])
def test_text_is_never_taken_for_markup(standing: dict[str, Any] | None) -> None:
    assert "[brackets]" in printed(find_space("nb201"), standing=standing)


def test_a_posterior_is_told_before_the_way_to_the_report() -> None:
    best = {"none": 0.0, "skip_connect": 1.0}
    posterior = {"draws": 12, "decisions": {"0->1": {"best": best, "credible_set": ["skip_connect"]}}}
    lines = printed(find_space("nb201"), posterior=posterior).splitlines()
    place = lines.index("  0->1  skip_connect  100 %")
    assert lines[place - 1].startswith("Posterior (12 draws")
    assert lines[place + 2].startswith("report: ")
    assert "Posterior" not in printed(find_space("nb201"))


def test_finalists_are_told_with_what_decided_between_them() -> None:
    row = {"steps": 420, "valid_loss": 1.51922, "valid_accuracy": 0.42, "parameters": 67570, "text": "|skip_connect~0|"}
    text = printed(find_space("nb201"), finalists=[row, *[{**row, "valid_loss": None}] * 4], finalists_seconds=290.0)
    assert "Finalists, each trained at full depth for a short while (4 min 50 s in all), by loss and size:" in text
    assert "  validation loss 1.519 after 420 steps, 67,570 parameters  |skip_connect~0|" in text
    assert "... and 2 more in the report" in text
    assert "Finalists" not in printed(find_space("nb201"))
