"""Write a comparison as CSV, LaTeX and JSON, and as one page that shows every seed."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence

from archloom.comparisons.entries import EntryResult, Timing
from archloom.comparisons.plots import StripPlot, draw_curves, tabulate_curves, tabulate_seeds
from archloom.comparisons.results import ALONE, VALUE, ComparisonResult
from archloom.comparisons.statistics import SEEDS_FOR_BOOTSTRAP
from archloom.core.bootstrap import CONFIDENCE
from archloom.reports.markup import make_printable
from archloom.reports.pages import render_template
from archloom.reports.pictures import Picture
from archloom.reports.tables import UNKNOWN, Table, decimal, duration, whole

PAGE = "comparison.html"
FILES = ("comparison.csv", "comparison.tex", ComparisonResult.file_name, PAGE)
TIMINGS: Mapping[Timing, str] = {
    "looked up": "that of looking scores up, without the trainings behind them",
    "by seconds_per_trial": "what their trainings would take, by seconds_per_trial",
    "unknown": "measured, looked up or computed; this file does not say which",
}


def render_files(result: ComparisonResult) -> dict[str, str]:
    """Return the comparison in every form, by file name."""
    as_json = json.dumps(result.to_json(), indent=1, allow_nan=False) + "\n"
    return dict(zip(FILES, (_to_csv(result), _to_latex(result), as_json, render_page(result)), strict=True))


# --- sentences


def explain_figures(result: ComparisonResult) -> list[str]:
    """Return sentences that say what the figures of the table are."""
    entries = result.entries
    excluded = f"without {result.missing} that did not finish" if result.missing else "none excluded"
    lines = [f"{_explain_metrics(entries)} Means and standard deviations are over seeds, {excluded}."]
    if result.datasets:
        lines.append(f"Best, worst and regret (points below the table's best) are of {result.datasets[0]}.")
    if result.has_races:
        lines.append(
            f"Results are those of search and finalist race; {ALONE} is what the search derived before its race."
        )
    lines.append(
        "Time and the number of architectures trained alone are means per search; one-shot searches train none."
    )
    lines += [
        f"Time of {_list_names(e.name for e in entries if e.timing == timing)}: {meaning}."
        for timing, meaning in TIMINGS.items()
        if any(e.timing == timing for e in entries)
    ]
    sources = dict.fromkeys(row.source for row in result.published if row.source)
    lines += [
        f"Published ({_list_names(row.name for row in result.published if row.source == source)}): {source}."
        for source in sources
    ]
    return lines


def _explain_metrics(entries: Sequence[EntryResult]) -> str:
    """Return which figures each entry has, and which way is better."""
    metrics = {entry.metric: entry.measure for entry in entries}
    sentences = []
    for measure in dict.fromkeys(metrics.values()):
        named = [
            metric if len(metrics) == 1 else f"{_list_names(e.name for e in entries if e.metric == metric)}: {metric}"
            for metric, own in metrics.items()
            if own is measure
        ]
        unit = ", in percent" if measure.unit == "%" else ""
        sentences.append(f"{measure.better.capitalize()} is better: {'; '.join(named)}{unit}.")
    return " ".join(sentences)


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(names)


def list_verdicts(result: ComparisonResult) -> list[tuple[str, str]]:
    """Return each entry's name and its verdict in words."""
    return [(name, verdict.sentence) for name, verdict in result.verdicts.items()]


# --- for programs


def _to_csv(result: ComparisonResult) -> str:
    text = io.StringIO()
    records = [result.summarize(entry) for entry in result.entries]
    writer = csv.DictWriter(text, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    for row in result.published:
        means = {f"{column}_mean": value for column, value in row.figures.items() if f"{column}_mean" in records[0]}
        writer.writerow({"entry": f"{row.name} (published)", **means})
    return text.getvalue()


# --- for papers


def _to_latex(result: ComparisonResult) -> str:
    """Return a table for the booktabs package, with the figures of the terminal."""
    table = result.to_table()
    lines = [
        "% needs \\usepackage{booktabs}",
        f"\\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
        "\\toprule",
        _to_latex_row(table.columns),
        "\\midrule",
        *(_to_latex_row(row) for row in table.rows),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    lines += [f"% {name}: {sentence}" for name, sentence in list_verdicts(result)]
    return "\n".join(lines) + "\n"


_LATEX = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "±": "$\\pm$",
    "–": "--",
}


def _to_latex_row(cells: Sequence[str]) -> str:
    return " & ".join("".join(_LATEX.get(c, c) for c in make_printable(cell)) for cell in cells) + " \\\\"


# --- the page


def render_page(result: ComparisonResult) -> str:
    """Return the report page of a comparison as HTML."""
    return render_template("comparison.html", make_context(result))


def make_context(result: ComparisonResult) -> dict[str, object]:
    """Return what the template of the page needs; pictures are drawn when the page shows them."""
    plot = StripPlot.of(result.entries, result.published, result.datasets[0] if result.datasets else "")
    return {
        "title": result.title,
        "subtitle": result.count_text,
        "missing": result.missing - len(result.failures),
        "failures": Table("", tuple(result.failures.items())),
        "summary": result.to_table(),
        "explanations": explain_figures(result),
        "against": result.against,
        "verdicts": Table("", tuple(list_verdicts(result))),
        "effects": _tabulate_effects(result),
        "confidence": f"{100 * CONFIDENCE:.0f} %",
        "seeds_for_bootstrap": SEEDS_FOR_BOOTSTRAP,
        "strips": Picture(
            "seeds",
            "Every seed",
            lambda: plot.to_svg() if plot else "",
            lambda: tabulate_seeds(result.entries),
        ),
        "curves": Picture(
            "stability",
            "Stability",
            lambda: draw_curves(result.entries),
            lambda: tabulate_curves(result.entries),
        ),
        "runs": _tabulate_searches(result),
    }


def _tabulate_effects(result: ComparisonResult) -> Table:
    columns = (
        "entry",
        "difference",
        f"{100 * CONFIDENCE:.0f} % CI",
        "p",
        "p corrected",
        "better than one of the others",
    )
    rows = [
        (
            name,
            f"{verdict.difference:+.2f}",
            UNKNOWN if verdict.low is None else f"{decimal(verdict.low)} to {decimal(verdict.high)}",
            decimal(verdict.p, digits=4),
            decimal(verdict.corrected, digits=4),
            UNKNOWN if verdict.superiority is None else f"{100 * verdict.superiority:.0f} %",
        )
        for name, verdict in result.verdicts.items()
        if verdict.difference is not None
    ]
    return Table("", tuple(rows), columns)


def _tabulate_searches(result: ComparisonResult) -> Table:
    columns = result.value_columns
    rows = tuple(
        (
            entry.name,
            str(found.seed),
            *(decimal(found.value if column == VALUE else found.tests.get(column)) for column in columns),
            duration(found.seconds),
            whole(found.trainings),
            found.text,
        )
        for entry in result.entries
        for found in entry.results
    )
    return Table("", rows, ("entry", "seed", *columns, "time", "trained", "architecture"))
