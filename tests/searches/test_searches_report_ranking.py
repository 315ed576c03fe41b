"""Rank quality in words, rows and a plot."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from archloom.searches.rank_correlation import Estimate, RankAgreement, ScoredPath
from archloom.searches.ranking import RankResult
from archloom.searches.report_ranking import describe_ranking, format_interval, rank_table, scatter, to_csv

NOT_KNOWN = Estimate(None)


def ranked(**changes: Any) -> RankResult:
    points = tuple(ScoredPath(f"cell {n}", 10.0 + n, 90.0 + n % 3) for n in range(6))
    values: dict[str, Any] = {
        "run": "runs/a",
        "title": "gdas on <nb201>, $cifar10$",
        "dataset": "cifar10",
        "instead_of": None,
        "metric": "test",
        "images": 100,
        "recalibrate": 0,
        "seed": 0,
        "asked": 6,
        "all": RankAgreement(6, Estimate(0.31, 0.18, 0.43), Estimate(0.45, 0.2, 0.6)),
        "top": RankAgreement(2, NOT_KNOWN, NOT_KNOWN),
        "picked": points[5],
        "best": points[2],
        "regret": 2.37,
        "average": 91.0,
        "architectures": points,
    }
    return RankResult(**{**values, **changes})


@pytest.mark.parametrize(
    ("kendall", "said"),
    [
        (Estimate(0.31, 0.18, 0.43), "rank architectures weakly: Kendall's tau 0.31, 95 % CI 0.18 to 0.43;"),
        (Estimate(0.9, 0.8, 0.95), "rank architectures very well:"),
        (Estimate(0.31, -0.01, 0.5), "no better than random order, as far as the sample shows:"),
        (Estimate(-0.3, -0.5, -0.1), "in reverse order:"),
        (NOT_KNOWN, "is not known: too few, or all scores are equal (6 architectures, test accuracy on cifar10)"),
    ],
)
def test_a_coefficient_is_put_into_words(kendall: Estimate, said: str) -> None:
    every = RankAgreement(6, kendall, Estimate(0.4, 0.1, 0.6))
    assert said in next(describe_ranking(ranked(all=every)))


def test_top_tenth_and_first_rank_have_sentences() -> None:
    _, top, pick = describe_ranking(ranked())
    assert top == "The sample has 2 of the table's top tenth: too few to measure how well they are ranked."
    assert pick.startswith("The architecture that they rank first has 92.00 % in the table, 2.37 points below the best")
    order = RankAgreement(9, Estimate(0.1, -0.4, 0.5), Estimate(0.1, -0.5, 0.6))
    assert "That is no better than random order." in list(describe_ranking(ranked(top=order)))[1]


def test_a_stand_in_is_named() -> None:
    assert "test accuracy on cifar10 instead of digits" in next(describe_ranking(ranked(instead_of="digits")))


def test_an_interval_that_is_not_known_is_left_out() -> None:
    assert format_interval(Estimate(0.5)) == "0.50"


def test_rows_and_lines_hold_the_figures() -> None:
    table = rank_table([ranked(), ranked(run="runs/b", regret=None)])
    assert table.rows[0] == ("0.31", "0.18 to 0.43", "0.45", "0.20 to 0.60", "– (of 2)", "2.37", "6", "runs/a")
    assert table.rows[1][-3] == "–"
    lines = to_csv([ranked()]).splitlines()
    assert lines[:2] == ["run,architecture,shared_accuracy,table_accuracy", "runs/a,cell 0,10.0,90.0"]
    assert len(lines) == 7


@pytest.mark.parametrize("count", [1, 3])
def test_the_plot_is_whole_xml_and_names_its_runs(count: int) -> None:
    picture = scatter([ranked() for _ in range(count)])
    text = "".join(ElementTree.fromstring(picture).itertext())
    assert text.count("gdas on <nb201>, $cifar10$") == count
    assert text.count("Kendall's tau 0.31, 95 % CI 0.18 to 0.43") == count


def test_empty_result_can_be_drawn() -> None:
    nothing = ranked(architectures=(), picked=None, best=None)
    assert ElementTree.fromstring(scatter([nothing])) is not None
