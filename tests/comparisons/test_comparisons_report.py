"""A comparison on paper: the same figures in every form, nothing that a name could break, plots of every seed."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from archloom.comparisons.report import (
    FILES,
    curve_panels,
    explanations,
    files_of,
    render,
    runs_text,
    strip_plot,
    summary_table,
)
from archloom.comparisons.results import Outcome, Result, Row
from archloom.comparisons.spec import Published
from archloom.comparisons.statistics import Verdict


def result(seed: int, value: float, **changes: Any) -> Result:
    tests = {"cifar10": value, "cifar100": value - 20}
    made = Result(seed, f"cell {seed % 2}", {}, value, tests, 94.37 - value, 90.0, 0.0, curve=(value - 2, value))
    return replace(made, **changes)


def row(name: str, values: list[float], **changes: Any) -> Row:
    results = tuple(result(seed, value) for seed, value in enumerate(values))
    datasets, metric = ("cifar10", "cifar100"), "test accuracy in the cifar10 table"
    return replace(Row(name, name, False, metric, datasets, results, len(values)), **changes)


@pytest.fixture
def outcome() -> Outcome:
    random = row("RS", [93.0, 94.0, 92.0], black_box=True, timing="looked up")
    trials = tuple(replace(found, trainings=10.0, curve=()) for found in random.results)
    verdict = Verdict("better than RS by 0.50 points", 0.5, 0.1, 0.9, 0.01, 0.02, 0.75)
    return Outcome(
        title="A table",
        rows=(replace(random, results=trials), row("gdas", [93.0, 94.0], seeds=4, failures={"gdas-2": "no memory"})),
        published=(
            Published("GDAS", {"cifar10": 93.61, "cifar100": 70.7}, "a paper"),
            Published("optimal", {"cifar10": 94.37}, "a paper"),
        ),
        verdicts={"gdas": verdict},
        against="RS",
    )


def test_a_row_says_all_of_an_entry_and_published_figures_stand_below(outcome: Outcome) -> None:
    table = summary_table(outcome)
    assert table.columns == (
        "entry", "runs", "cifar10", "cifar100", "best", "worst", "regret", "time", "trained", "cells",
    )  # fmt: skip
    assert table.rows[0] == (
        "RS", "3", "93.00 ± 1.00", "73.00 ± 1.00", "94.00", "92.00", "1.37 ± 1.00", "1 min 30 s", "10", "2",
    )  # fmt: skip
    assert table.rows[1][:3] == ("gdas", "2 of 4, 1 failed", "93.50 ± 0.71")
    assert table.rows[1][-2:] == ("0", "2")
    assert table.rows[2] == ("GDAS (published)", "–", "93.61", "70.70", *["–"] * 6)
    assert [line[0] for line in table.rows] == ["RS", "gdas", "GDAS (published)", "optimal (published)"]


def test_words_on_what_the_figures_are(outcome: Outcome) -> None:
    lines = explanations(outcome)
    assert lines[0].endswith("over seeds, without 2 that did not finish.")
    whole = replace(outcome, rows=(outcome.rows[0],))
    assert explanations(whole)[0].endswith("over seeds, none left out.")
    assert "test accuracy in the cifar10 table" in lines[0]
    assert "Time of RS: that of looking scores up, not of the trainings behind them." in lines
    assert lines[-1] == "Published (GDAS, optimal): a paper."
    shared = row("own", [50.0], metric="accuracy under the shared weights of its own search", datasets=())
    mixed = replace(outcome, rows=(outcome.rows[0], replace(shared, results=(result(0, 50.0, tests={}, regret=None),))))
    assert "RS: test accuracy in the cifar10 table; own: accuracy under the shared weights" in explanations(mixed)[0]
    table = summary_table(mixed)
    assert table.columns[2:5] == ("cifar10", "cifar100", "value")
    assert [line[2:5] for line in table.rows[:2]] == [("93.00 ± 1.00", "73.00 ± 1.00", "–"), ("–", "–", "50.00")]


def test_every_form_has_the_same_figures(outcome: Outcome) -> None:
    files = files_of(outcome)
    assert tuple(files) == FILES
    records = list(csv.DictReader(io.StringIO(files["comparison.csv"])))
    assert [record["entry"] for record in records] == ["RS", "gdas", "GDAS (published)", "optimal (published)"]
    gdas = records[1]
    assert (gdas["seeds"], gdas["finished"], gdas["failed"], gdas["cells"]) == ("4", "2", "1", "2")
    assert float(gdas["cifar100_mean"]) == 73.5 and float(gdas["cifar100_std"]) == pytest.approx(0.7071, abs=1e-4)
    assert (float(gdas["cifar10_best"]), float(gdas["cifar10_worst"])) == (94.0, 93.0)
    assert (float(gdas["difference"]), float(gdas["corrected"]), gdas["against"]) == (0.5, 0.02, "RS")
    assert records[0]["verdict"] == "" and float(records[0]["trained_mean"]) == 10
    content = json.loads(files["comparison.json"])
    assert [run["value"] for run in content["entries"][1]["runs"]] == [93.0, 94.0]
    assert content["entries"][1]["failures"] == {"gdas-2": "no memory"}
    assert content["published"][0]["figures"] == {"cifar10": 93.61, "cifar100": 70.7}
    latex = files["comparison.tex"]
    assert "gdas & 2 of 4, 1 failed & 93.50 $\\pm$ 0.71 & 73.50 $\\pm$ 0.71 & 94.00 & 93.00" in latex
    assert latex.count("\\\\\n") == 5 and "\\toprule" in latex
    page = files["comparison.html"]
    for text in ("better than RS by 0.50 points", "93.50 ± 0.71", "+0.50", "0.10 to 0.90", "75 %", "no memory"):
        assert text in page
    assert "1 search is still to come" in page


def test_a_name_can_break_nothing(outcome: Outcome) -> None:
    evil = "<b>&_%$\\"
    changed = replace(outcome, title=evil, rows=(replace(outcome.rows[0], name=evil), outcome.rows[1]))
    page = render(changed)
    assert "<b>" not in page and "&lt;b&gt;&amp;_%$\\" in page
    assert "\n<b>\\&\\_\\%\\$\\textbackslash{} & 3 &" in files_of(changed)["comparison.tex"]


def test_a_page_without_anything_finished_is_still_a_page(outcome: Outcome) -> None:
    empty = replace(outcome, rows=tuple(replace(r, results=(), failures={}) for r in outcome.rows), verdicts={})
    page = render(empty)
    assert "7 searches are still to come" in page
    assert 'id="seeds"' not in page and 'id="curves"' not in page and 'id="verdict"' not in page


def dots(svg: str) -> int:
    """How many markers a plot has."""
    return len(re.findall("<use ", svg))


def test_every_seed_is_a_dot(outcome: Outcome) -> None:
    plot = strip_plot(outcome)
    ElementTree.fromstring(plot)
    more = replace(outcome, rows=(outcome.rows[0], row("gdas", [93.0, 94.0, 93.3])))
    assert dots(strip_plot(more)) == dots(plot) + 1
    assert "optimal (published)" in plot and "GDAS (published)" not in plot  # that one has the line of its entry
    assert plot == strip_plot(outcome)


def test_far_below_brings_a_closer_look(outcome: Outcome) -> None:
    assert "the upper 4 points" not in strip_plot(outcome)
    assert "the upper 4 points" in strip_plot(replace(outcome, rows=(*outcome.rows, row("darts", [54.3]))))


def test_curves_are_of_one_shot_searches(outcome: Outcome) -> None:
    plot = curve_panels(outcome)
    ElementTree.fromstring(plot)
    assert "gdas (2)" in plot and "RS" not in plot
    assert curve_panels(replace(outcome, rows=outcome.rows[:1])) == ""


def test_how_many_runs(outcome: Outcome) -> None:
    assert [runs_text(r) for r in outcome.rows] == ["3", "2 of 4, 1 failed"]
