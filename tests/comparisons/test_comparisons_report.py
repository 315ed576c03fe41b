"""Reports of a comparison: the same figures in every form, everything escaped, a dot per seed."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from archloom.comparisons.entries import EntryResult, SeedResult
from archloom.comparisons.plots import StripPlot, draw_curves
from archloom.comparisons.report import FILES, explain_figures, render_files, render_page
from archloom.comparisons.results import ComparisonResult, runs_text
from archloom.comparisons.spec import Published
from archloom.comparisons.statistics import Verdict
from archloom.core.metrics import PERPLEXITY


def seed_result(seed: int, value: float, **changes: Any) -> SeedResult:
    tests = {"cifar10": value, "cifar100": value - 20}
    made = SeedResult(seed, f"cell {seed % 2}", value, tests, 94.37 - value, 90.0, 0.0, curve=(value - 2, value))
    return replace(made, **changes)


def row(name: str, values: list[float], **changes: Any) -> EntryResult:
    results = tuple(seed_result(seed, value) for seed, value in enumerate(values))
    datasets, metric = ("cifar10", "cifar100"), "test accuracy in the cifar10 table"
    return replace(EntryResult(name, name, False, metric, datasets, results, len(values)), **changes)


@pytest.fixture
def comparison() -> ComparisonResult:
    random = row("RS", [93.0, 94.0, 92.0], black_box=True, timing="looked up")
    trials = tuple(replace(found, trainings=10.0, curve=()) for found in random.results)
    verdict = Verdict("better than RS by 0.50 points", 0.5, 0.1, 0.9, 0.01, 0.02, 0.75)
    return ComparisonResult(
        title="A table",
        entries=(replace(random, results=trials), row("gdas", [93.0, 94.0], seeds=4, failures={"gdas-2": "no memory"})),
        published=(
            Published("GDAS", {"cifar10": 93.61, "cifar100": 70.7}, "a paper"),
            Published("optimal", {"cifar10": 94.37}, "a paper"),
        ),
        verdicts={"gdas": verdict},
        against="RS",
    )


def test_table_has_a_row_per_entry_with_published_figures_below(comparison: ComparisonResult) -> None:
    table = comparison.to_table()
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


def test_of_perplexities_the_lowest_is_the_best(comparison: ComparisonResult) -> None:
    metric = "perplexity under the shared weights of its own search"
    entry = row("gdas", [81.0, 79.0], metric=metric, datasets=(), figure="perplexity")
    text = replace(comparison, entries=(entry,), published=(), verdicts={})
    assert text.to_table().rows[0][2:5] == ("80.00 ± 1.41", "79.00", "81.00")
    assert explain_figures(text)[0].startswith(f"Lower is better: {metric}. Means")
    summary = text.summarize(entry)
    assert (summary["value_best"], summary["value_worst"]) == (79.0, 81.0)
    assert ComparisonResult.from_json(json.loads(json.dumps(text.to_json()))).entries[0].measure is PERPLEXITY
    plot = StripPlot.of(text.entries, (), "")
    assert plot is not None and plot.to_figure().axes[0].get_xlabel() == f"{metric} (lower is better)"
    mixed = replace(text, entries=(entry, row("RS", [93.0])))
    first = explain_figures(mixed)[0]
    assert first.startswith(f"Lower is better: gdas: {metric}. Higher is better: RS: test accuracy in the ")


def test_explanations_say_what_the_figures_are(comparison: ComparisonResult) -> None:
    lines = explain_figures(comparison)
    assert lines[0].endswith("over seeds, without 2 that did not finish.")
    whole = replace(comparison, entries=(comparison.entries[0],))
    assert explain_figures(whole)[0].endswith("over seeds, none excluded.")
    assert "test accuracy in the cifar10 table" in lines[0]
    assert "Time of RS: that of looking scores up, without the trainings behind them." in lines
    assert lines[-1] == "Published (GDAS, optimal): a paper."
    shared = row("own", [50.0], metric="accuracy under the shared weights of its own search", datasets=())
    mixed = replace(
        comparison,
        entries=(comparison.entries[0], replace(shared, results=(seed_result(0, 50.0, tests={}, regret=None),))),
    )
    assert "RS: test accuracy in the cifar10 table; own: accuracy under the shared weights" in explain_figures(mixed)[0]
    table = mixed.to_table()
    assert table.columns[2:5] == ("cifar10", "cifar100", "value")
    assert [line[2:5] for line in table.rows[:2]] == [("93.00 ± 1.00", "73.00 ± 1.00", "–"), ("–", "–", "50.00")]


def test_every_form_has_the_same_figures(comparison: ComparisonResult) -> None:
    files = render_files(comparison)
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
    assert "1 search is not finished" in page


def test_names_are_escaped(comparison: ComparisonResult) -> None:
    evil = "<b>&_%$\\"
    changed = replace(
        comparison, title=evil, entries=(replace(comparison.entries[0], name=evil), comparison.entries[1])
    )
    page = render_page(changed)
    assert "<b>" not in page and "&lt;b&gt;&amp;_%$\\" in page
    assert "\n<b>\\&\\_\\%\\$\\textbackslash{} & 3 &" in render_files(changed)["comparison.tex"]


def test_page_of_an_unfinished_comparison(comparison: ComparisonResult) -> None:
    empty = replace(
        comparison, entries=tuple(replace(r, results=(), failures={}) for r in comparison.entries), verdicts={}
    )
    page = render_page(empty)
    assert "7 searches are not finished" in page
    assert 'id="seeds"' not in page and 'id="curves"' not in page and 'id="verdict"' not in page


def draw_strips(result: ComparisonResult) -> str:
    plot = StripPlot.of(result.entries, result.published, result.datasets[0])
    assert plot is not None
    return plot.to_svg()


def dots(svg: str) -> int:
    """How many markers a plot has."""
    return len(re.findall("<use ", svg))


def test_strip_plot_has_a_dot_per_seed(comparison: ComparisonResult) -> None:
    plot = draw_strips(comparison)
    ElementTree.fromstring(plot)
    more = replace(comparison, entries=(comparison.entries[0], row("gdas", [93.0, 94.0, 93.3])))
    assert dots(draw_strips(more)) == dots(plot) + 1
    assert "optimal (published)" in plot and "GDAS (published)" not in plot  # that one has the line of its entry
    assert plot == draw_strips(comparison)


def test_seeds_far_below_add_a_second_panel(comparison: ComparisonResult) -> None:
    assert "the upper 4 points" not in draw_strips(comparison)
    assert "the upper 4 points" in draw_strips(replace(comparison, entries=(*comparison.entries, row("darts", [54.3]))))


def test_curves_show_one_shot_searches_only(comparison: ComparisonResult) -> None:
    plot = draw_curves(comparison.entries)
    ElementTree.fromstring(plot)
    assert "gdas (2)" in plot and "RS" not in plot
    assert draw_curves(comparison.entries[:1]) == ""


def test_runs_text_counts_finished_and_failed_runs(comparison: ComparisonResult) -> None:
    assert [runs_text(r) for r in comparison.entries] == ["3", "2 of 4, 1 failed"]
