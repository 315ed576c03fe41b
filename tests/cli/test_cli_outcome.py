"""The end of a search: complete, copyable, and clear on what is not known."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from archloom.benchmarks import TableEntry
from archloom.cli.outcome import print_outcome, table_hint
from archloom.objectives import Cost
from archloom.policies.posterior import DecisionPosterior, Mixing, Posterior
from archloom.searches.architectures import find_space
from archloom.searches.records import EarlyStop, FinalistRecord
from archloom.spaces import Architecture, SearchSpace
from search_runs import RUN, make_epoch, make_race, make_result

ENTRY = TableEntry("cifar10", 93.1, 90.2, rank=1234, count=15625, regret=1.27)


def printed(space: SearchSpace, **changes: Any) -> str:
    architecture = space.sample(random.Random(0))
    epoch = make_epoch(architecture=architecture, text=space.format(architecture))
    values: dict[str, Any] = {
        "verdict": "The verdict of [brackets].",
        "space_name": "mine",
        "seed": 7,
        "cost": Cost(1234567, 89),
        "run": replace(RUN, seconds=75.0, records=1, peak_memory_mb=512.4),
        "folder": Path("my runs/a"),
        **changes,
    }
    result = make_result(space, (epoch,), **values)
    console = Console(file=io.StringIO(), width=80, markup=False, highlight=False)
    print_outcome(result, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_architecture_has_a_line_of_its_own() -> None:
    space = find_space("darts")
    text = space.format(space.sample(random.Random(0)))
    assert len(text) > 200
    assert text in printed(space).splitlines()


def test_output_fits_into_80_columns() -> None:
    space = find_space("nb201")
    text = printed(space, table_entry=ENTRY)
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


def test_table_that_covers_the_space_is_named() -> None:
    assert "regret of this architecture: to see them" in table_hint(find_space("nb201"), "cifar10")
    assert "of this architecture on cifar10, not on your data: to see" in table_hint(find_space("nb201"), "pictures")
    assert "--data-dir" in printed(find_space("nb201"))


def test_space_with_an_installed_table_is_named(digits_table: Path) -> None:
    assert table_hint(find_space("nb201"), "digits").endswith("--space nb201_mini has a table that is installed.")


def test_space_without_a_table_is_named_as_such() -> None:
    assert table_hint(find_space("darts"), "cifar10") == (
        "No benchmark table covers this space, so rank and regret are not known."
    )


@pytest.mark.parametrize("entry", [None, ENTRY])
def test_text_is_never_taken_for_markup(entry: TableEntry | None) -> None:
    assert "[brackets]" in printed(find_space("nb201"), table_entry=entry)


def test_posterior_comes_before_the_path_of_the_report() -> None:
    decision = DecisionPosterior({"none": 0.0, "skip_connect": 1.0}, ("skip_connect",), entropy=0.0)
    mixing = Mixing(4, 3, effective_draws=60.0, effective_draws_median=60.0, r_hat=1.0, r_hat_median=1.0)
    decisions = {"0->1": decision}
    posterior = Posterior(draws=12, different_architectures=1, decisions=decisions, architectures=(), mixing=mixing)
    lines = printed(find_space("nb201"), posterior=posterior).splitlines()
    place = lines.index("  0->1  skip_connect  100 %")
    assert lines[place - 1].startswith("Posterior (12 draws")
    assert lines[place + 2].startswith("report: ")
    assert "Posterior" not in printed(find_space("nb201"))


def test_finalists_have_their_losses_and_sizes() -> None:
    row = FinalistRecord("|skip_connect~0|", Architecture({}), 420, 1.51922, 0.42, 67570)
    rows = (row, *[replace(row, valid_loss=None)] * 4)
    text = printed(find_space("nb201"), finalists=rows, finalists_seconds=290.0)
    assert "Finalists, each trained briefly (4 min 50 s in all), ranked by loss and size:" in text
    assert "  validation loss 1.519 after 420 steps, 67,570 parameters  |skip_connect~0|" in text
    assert "... and 2 more in the report" in text
    assert "Finalists" not in printed(find_space("nb201"))


def test_how_sure_the_race_is_stands_above_its_finalists() -> None:
    row = FinalistRecord("|skip_connect~0|", Architecture({}), 420, 1.51922, 0.42, 67570)
    lines = " ".join(printed(find_space("nb201"), finalists=(row,), race=make_race(probability=0.62)).split())
    assert (
        "architectures (39 short trainings). The probability that the result has the best score of these 24 is 62"
        in lines
    )
    assert lines.index("is 62 %") < lines.index("Finalists, each")


def test_an_early_stop_is_explained() -> None:
    text = printed(find_space("nb201"), early_stop=EarlyStop("too many skips", after_epoch=3, as_of_epoch=2))
    assert "The monitor stopped the search after epoch 3: too many skips." in " ".join(text.split())
