"""A comparison as tables (terminal, CSV, LaTeX, JSON) and as one page with every seed in sight."""

from __future__ import annotations

import csv
import io
import json
import math
import random
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from archloom.comparisons.results import Outcome, Row, Timing
from archloom.core.bootstrap import CONFIDENCE
from archloom.reports.figures import MUTED, PALETTE, grid, svg, whole_steps
from archloom.reports.markup import printable, shortened
from archloom.reports.pages import page
from archloom.reports.tables import UNKNOWN, Table, decimal, duration, spread, whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FILES = ("comparison.csv", "comparison.tex", "comparison.json", "comparison.html")
VALUE = "value"  # the column of entries that no table knows
UPPER_PART = 4.0  # points below the best that a closer look shows, where some seeds are far below
FAR_BELOW = 3 * UPPER_PART
CURVES_IN_A_ROW = 4
TIMINGS: Mapping[Timing, str] = {
    "looked up": "that of looking scores up, not of the trainings behind them",
    "by seconds_per_trial": "what their trainings would take, as the comparison says",
}


def files_of(outcome: Outcome) -> dict[str, str]:
    """The comparison in every form, by file name."""
    return dict(zip(FILES, (_csv(outcome), _latex(outcome), _json(outcome), render(outcome)), strict=True))


# --- the table, for people


def summary_table(outcome: Outcome) -> Table:
    """A row per entry, published figures of the same name below it, and the other ones at the end."""
    published = {row.name: _published(row.name, row.figures, outcome) for row in outcome.published}
    rows = []
    for row in outcome.rows:
        same = [name for name in published if name.casefold() == row.name.casefold()]
        rows += [_summary(row, outcome), *(published.pop(name) for name in same)]
    columns = ("entry", "runs", *_value_columns(outcome), "best", "worst", "regret", "time", "trained", "cells")
    return Table("", (*rows, *published.values()), columns)


def _summary(row: Row, outcome: Outcome) -> tuple[str, ...]:
    values = row.values
    regrets = [result.regret for result in row.results if result.regret is not None]
    return (
        row.name,
        runs_text(row),
        *(spread(_values(row, column)) for column in _value_columns(outcome)),
        decimal(max(values, default=None)),
        decimal(min(values, default=None)),
        spread(regrets),
        duration(_mean([result.seconds for result in row.results])),
        trained_text(row),
        str(row.cells) if row.results else UNKNOWN,
    )


def _published(name: str, figures: Mapping[str, float], outcome: Outcome) -> tuple[str, ...]:
    shown = [decimal(figures.get(column)) for column in _value_columns(outcome)]
    return (f"{name} (published)", UNKNOWN, *shown, *[UNKNOWN] * 6)


def _published_figures(outcome: Outcome) -> dict[str, Mapping[str, float]]:
    return {row.name: row.figures for row in outcome.published}


def _value_columns(outcome: Outcome) -> tuple[str, ...]:
    """The data sets of tables, and one more for entries that no table knows."""
    return (*outcome.datasets, *([VALUE] if any(not row.datasets for row in outcome.rows) else []))


def _values(row: Row, column: str) -> list[float]:
    return (row.values if not row.datasets else []) if column == VALUE else row.tests(column)


def runs_text(row: Row) -> str:
    """`5`, `3 of 5`, `3 of 5, 1 failed`."""
    done = str(row.seeds) if len(row.results) == row.seeds else f"{len(row.results)} of {row.seeds}"
    return f"{done}, {len(row.failures)} failed" if row.failures else done


def trained_text(row: Row) -> str:
    """Architectures trained by themselves; a one-shot search trains none, and its seconds tell what it costs."""
    mean = _mean([result.trainings for result in row.results])
    return UNKNOWN if mean is None else "0" if not row.black_box else f"{mean:,.1f}".removesuffix(".0")


def explanations(outcome: Outcome) -> list[str]:
    """What the figures are."""
    metrics = [f"{', '.join(row.name for row in outcome.rows if row.metric == m)}: {m}" for m in outcome.metrics]
    what = outcome.metrics[0] if len(outcome.metrics) == 1 else "; ".join(metrics)
    left_out = f"without {outcome.missing} that did not finish" if outcome.missing else "none left out"
    lines = [f"Higher is better: {what}, in percent. Means and standard deviations are over seeds, {left_out}."]
    if outcome.datasets:
        lines.append(f"Best, worst and regret (points below the table's best) are of {outcome.datasets[0]}.")
    lines.append("Time and architectures trained by themselves are means of one search; a one-shot search trains none.")
    lines += [
        f"Time of {_listed(row.name for row in outcome.rows if row.timing == timing)}: {meaning}."
        for timing, meaning in TIMINGS.items()
        if any(row.timing == timing for row in outcome.rows)
    ]
    sources = dict.fromkeys(row.source for row in outcome.published if row.source)
    lines += [
        f"Published ({_listed(row.name for row in outcome.published if row.source == source)}): {source}."
        for source in sources
    ]
    return lines


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def verdict_lines(outcome: Outcome) -> list[tuple[str, str]]:
    return [(name, verdict.sentence) for name, verdict in outcome.verdicts.items()]


def _mean(values: Sequence[float]) -> float | None:
    return statistics.mean(values) if values else None


# --- the table, for programs


def _csv(outcome: Outcome) -> str:
    text = io.StringIO()
    records = [_record(row, outcome) for row in outcome.rows]
    writer = csv.DictWriter(text, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    writer.writerows(_published_record(name, figures) for name, figures in _published_figures(outcome).items())
    return text.getvalue()


def _record(row: Row, outcome: Outcome) -> dict[str, Any]:
    """All figures of an entry; what is not known is empty."""
    record: dict[str, Any] = {
        "entry": row.name,
        "strategy": row.strategy,
        "metric": row.metric,
        "seeds": row.seeds,
        "finished": len(row.results),
        "failed": len(row.failures),
    }
    for column in _value_columns(outcome):
        values = _values(row, column)
        record |= {f"{column}_mean": _mean(values), f"{column}_std": _deviation(values)}
        record |= {f"{column}_best": max(values, default=None), f"{column}_worst": min(values, default=None)}
    verdict = outcome.verdicts.get(row.name)
    figures = {} if verdict is None else asdict(verdict)
    return {
        **record,
        "regret_mean": _mean([result.regret for result in row.results if result.regret is not None]),
        "seconds_mean": _mean([result.seconds for result in row.results]),
        "trained_mean": _mean([result.trainings for result in row.results]),
        "cells": row.cells,
        "against": outcome.against if figures else None,
        **{name: figures.get(name) for name in ("difference", "low", "high", "p", "corrected", "superiority")},
        "verdict": figures.get("sentence"),
    }


def _published_record(name: str, figures: Mapping[str, float]) -> dict[str, Any]:
    return {"entry": f"{name} (published)", **{f"{column}_mean": value for column, value in figures.items()}}


def _deviation(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def _json(outcome: Outcome) -> str:
    rows = [
        {**_record(row, outcome), "failures": dict(row.failures), "runs": [_run(result) for result in row.results]}
        for row in outcome.rows
    ]
    published = [asdict(row) for row in outcome.published]
    content = {"title": outcome.title, "against": outcome.against, "entries": rows, "published": published}
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _run(result: Any) -> dict[str, Any]:
    names = ("seed", "text", "value", "tests", "regret", "seconds", "trainings", "curve")
    return {name: getattr(result, name) for name in names}


# --- the table, for papers


def _latex(outcome: Outcome) -> str:
    """A table for the booktabs package; figures as in the terminal."""
    table = summary_table(outcome)
    lines = [
        "% needs \\usepackage{booktabs}",
        f"\\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
        "\\toprule",
        _latex_row(table.columns),
        "\\midrule",
        *(_latex_row(row) for row in table.rows),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    lines += [f"% {name}: {sentence}" for name, sentence in verdict_lines(outcome)]
    return "\n".join(lines) + "\n"


_LATEX = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "±": "$\\pm$",
    "–": "--",
}


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join("".join(_LATEX.get(c, c) for c in printable(cell)) for cell in cells) + " \\\\"


# --- the page


def render(outcome: Outcome) -> str:
    """The whole page."""
    return page(
        "comparison.html",
        {
            "title": outcome.title,
            "subtitle": _subtitle(outcome),
            "missing": outcome.missing - len(outcome.failures),
            "failures": Table("", tuple(outcome.failures.items())),
            "summary": summary_table(outcome),
            "explanations": explanations(outcome),
            "against": outcome.against,
            "verdicts": Table("", tuple(verdict_lines(outcome))),
            "effects": _effects(outcome),
            "confidence": f"{100 * CONFIDENCE:.0f} %",
            "strips": strip_plot(outcome),
            "curves": curve_panels(outcome),
            "runs": _runs(outcome),
        },
    )


def _subtitle(outcome: Outcome) -> str:
    done = sum(len(row.results) for row in outcome.rows)
    return f"{len(outcome.rows)} entries, {done:,} finished searches"


def _effects(outcome: Outcome) -> Table:
    columns = ("entry", "difference", f"{100 * CONFIDENCE:.0f} % CI", "p", "p corrected", "beats one of the others")
    rows = [
        (
            name,
            f"{verdict.difference:+.2f}",
            UNKNOWN if verdict.low is None else f"{decimal(verdict.low)} to {decimal(verdict.high)}",
            decimal(verdict.p, digits=4),
            decimal(verdict.corrected, digits=4),
            UNKNOWN if verdict.superiority is None else f"{100 * verdict.superiority:.0f} %",
        )
        for name, verdict in outcome.verdicts.items()
        if verdict.difference is not None
    ]
    return Table("", tuple(rows), columns)


def _runs(outcome: Outcome) -> Table:
    columns = _value_columns(outcome)
    rows = tuple(
        (
            row.name,
            str(result.seed),
            *(decimal(result.value if column == VALUE else result.tests.get(column)) for column in columns),
            duration(result.seconds),
            whole(result.trainings),
            result.text,
        )
        for row in outcome.rows
        for result in row.results
    )
    return Table("", rows, ("entry", "seed", *columns, "time", "trained", "architecture"))


# --- plots


def strip_plot(outcome: Outcome) -> str:
    """A line per entry with a dot per seed, and the mean; closer in a second panel where some are far below."""
    rows = [row for row in outcome.rows if row.values]
    if not rows:
        return ""
    dataset = outcome.datasets[0] if outcome.datasets else ""
    marks = {row.name: row.figures[dataset] for row in outcome.published if dataset in row.figures}
    names = list(dict.fromkeys([*(row.name for row in rows), *(_line_of(name, rows) for name in marks)]))
    values = [value for row in rows for value in row.values]
    closer = max(values) - min(values) > FAR_BELOW

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, 2 if closer else 1, squeeze=False, sharey=True)[0]
        for axes in panels:
            _draw_strips(axes, rows, marks, names, _colours(outcome))
        panels[0].set_yticks(range(len(names)), [printable(shortened(name, longest=28)) for name in names])
        panels[0].set_ylim(len(names) - 0.5, -0.5)
        panels[0].set_xlabel(" / ".join(outcome.metrics) + ", %")
        if closer:
            panels[1].set_xlim(max(values) - UPPER_PART, max(values) + 0.03 * UPPER_PART)
            panels[1].set_xlabel(f"the same, the upper {UPPER_PART:g} points")

    return svg(draw, height=0.34 * len(names) + 0.9, label="Every seed of every entry")


def _line_of(published: str, rows: Sequence[Row]) -> str:
    """The line of a published figure: that of the entry of the same name, else one of its own."""
    same = [row.name for row in rows if row.name.casefold() == published.casefold()]
    return same[0] if same else f"{published} (published)"


def _colours(outcome: Outcome) -> dict[str, str]:
    """The colour of every entry, the same in all plots."""
    return {row.name: PALETTE[place % len(PALETTE)] for place, row in enumerate(outcome.rows)}


def _draw_strips(
    axes: Axes, rows: Sequence[Row], marks: Mapping[str, float], names: Sequence[str], colours: Mapping[str, str]
) -> None:
    rng = random.Random(0)  # how far dots stand from their line means nothing, and is the same every time
    for row in rows:
        heights = [names.index(row.name) + (rng.random() - 0.5) * 0.5 for _ in row.values]
        faint = 0.75 if len(row.values) <= 20 else 0.25
        axes.plot(row.values, heights, "o", color=colours[row.name], markersize=3.4, alpha=faint, mew=0)
        centre, height = statistics.mean(row.values), names.index(row.name)
        axes.plot([centre, centre], [height - 0.36, height + 0.36], color="#111827", linewidth=1.6)
    for name, value in marks.items():
        axes.plot([value], [names.index(_line_of(name, rows))], "D", color="white", mec="#111827", markersize=4.5)
    axes.grid(visible=False, axis="y")


def curve_panels(outcome: Outcome) -> str:
    """Per one-shot entry: what its architecture would have reached after every epoch, mean and extremes of seeds."""
    curves = {row.name: list(_curves(row)) for row in outcome.rows}
    curves = {name: found for name, found in curves.items() if found}
    if not curves:
        return ""
    columns = min(CURVES_IN_A_ROW, len(curves))
    colours = _colours(outcome)

    def draw(figure: Figure) -> None:
        panels = grid(figure, len(curves), columns=columns, shared=True)
        for place, (axes, (name, found)) in enumerate(zip(panels, curves.items(), strict=True)):
            _draw_curves(axes, found, colour=colours[name])
            axes.set_title(printable(shortened(f"{name} ({len(found)})", longest=30)), loc="left")
            if place >= len(curves) - columns:
                axes.set_xlabel("epoch")
                axes.tick_params(labelbottom=True)
            if place % columns == 0:
                axes.set_ylabel("test accuracy, %")

    height = 2.1 * math.ceil(len(curves) / columns) + 0.3
    return svg(draw, height=height, label="Accuracy of what each search would have returned after every epoch")


def _curves(row: Row) -> Iterator[tuple[float, ...]]:
    yield from (result.curve for result in row.results if result.curve)


def _draw_curves(axes: Axes, curves: Sequence[Sequence[float]], *, colour: str) -> None:
    length = min(map(len, curves))
    epochs, at = range(1, length + 1), list(zip(*(curve[:length] for curve in curves), strict=True))
    for curve in curves:
        axes.plot(range(1, len(curve) + 1), curve, color=MUTED, linewidth=0.6)  # a search may have been stopped early
    axes.fill_between(epochs, list(map(min, at)), list(map(max, at)), color=colour, alpha=0.15, linewidth=0)
    axes.plot(epochs, [statistics.mean(values) for values in at], color=colour, linewidth=2)
    whole_steps(axes)
