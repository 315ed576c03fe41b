"""Rank quality in words, rows and a plot."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from archloom.searches.report_ranking import as_csv, rank_table, scatter, sentences, with_interval

NOT_KNOWN = {"value": None, "low": None, "high": None}


def estimate(value: float, low: float, high: float) -> dict[str, float]:
    return {"value": value, "low": low, "high": high}


def ranked(**changes: Any) -> dict[str, Any]:
    points = [{"text": f"cell {n}", "shared": 10.0 + n, "known": 90.0 + n % 3} for n in range(6)]
    return {
        "run": "runs/a",
        "title": "gdas on <nb201>, $cifar10$",
        "dataset": "cifar10",
        "instead_of": None,
        "metric": "test",
        "judged": 6,
        "asked": 6,
        "all": {"count": 6, "kendall": estimate(0.31, 0.18, 0.43), "spearman": estimate(0.45, 0.2, 0.6)},
        "top": {"count": 2, "kendall": NOT_KNOWN, "spearman": NOT_KNOWN},
        "picked": points[5],
        "best": points[2],
        "regret": 2.37,
        "average": 91.0,
        "architectures": points,
        **changes,
    }


@pytest.mark.parametrize(
    ("kendall", "said"),
    [
        (estimate(0.31, 0.18, 0.43), "order architectures weakly: Kendall's tau 0.31, 95 % CI 0.18 to 0.43;"),
        (estimate(0.9, 0.8, 0.95), "order architectures very well:"),
        (estimate(0.31, -0.01, 0.5), "no better than chance, as far as can be told:"),
        (estimate(-0.3, -0.5, -0.1), "the wrong way round:"),
        (NOT_KNOWN, "cannot be told: too few, or all judged alike (6 architectures, test accuracy on cifar10)"),
    ],
)
def test_a_coefficient_is_put_into_words(kendall: dict[str, Any], said: str) -> None:
    every = {"count": 6, "kendall": kendall, "spearman": estimate(0.4, 0.1, 0.6)}
    assert said in next(sentences(ranked(all=every)))


def test_the_top_tenth_and_the_pick_are_told() -> None:
    _, top, pick = sentences(ranked())
    assert top == "Of the table's top tenth the sample has 2: too few to tell whether good ones are ordered."
    assert pick.startswith("The one they like best has 92.00 % in the table, 2.37 points below the best of all;")
    order = {"count": 9, "kendall": estimate(0.1, -0.4, 0.5), "spearman": estimate(0.1, -0.5, 0.6)}
    assert "no order that can be told from chance" in list(sentences(ranked(top=order)))[1]


def test_a_stand_in_is_named() -> None:
    assert "test accuracy on cifar10 instead of digits" in next(sentences(ranked(instead_of="digits")))


def test_an_interval_that_is_not_known_is_left_out() -> None:
    assert with_interval({"value": 0.5, "low": None, "high": None}) == "0.50"


def test_rows_and_lines_hold_the_figures() -> None:
    table = rank_table([ranked(), ranked(run="runs/b", regret=None)])
    assert table.rows[0] == ("0.31", "0.18 to 0.43", "0.45", "0.20 to 0.60", "– (of 2)", "2.37", "6", "runs/a")
    assert table.rows[1][-3] == "–"
    lines = as_csv([ranked()]).splitlines()
    assert lines[:2] == ["run,architecture,shared_accuracy,table_accuracy", "runs/a,cell 0,10.0,90.0"]
    assert len(lines) == 7


@pytest.mark.parametrize("count", [1, 3])
def test_the_plot_is_whole_xml_and_names_its_runs(count: int) -> None:
    picture = scatter([ranked() for _ in range(count)])
    text = "".join(ElementTree.fromstring(picture).itertext())
    assert text.count("gdas on <nb201>, $cifar10$") == count
    assert text.count("Kendall's tau 0.31, 95 % CI 0.18 to 0.43") == count


def test_nothing_judged_can_be_drawn_too() -> None:
    nothing = ranked(architectures=[], picked=None, best=None, judged=0)
    assert ElementTree.fromstring(scatter([nothing])) is not None
