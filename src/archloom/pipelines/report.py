"""A pipeline for readers: what was found, what was picked and why, how good it is, and whose doing the spread is."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from archloom.pipelines.results import FIGURES, PipelineOutcome
from archloom.reports.figures import PALETTE, svg
from archloom.reports.pages import page
from archloom.reports.tables import Table, decimal, duration, spread, whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def render_pipeline(outcome: PipelineOutcome, folder: Path) -> str:
    """The whole page; its links are relative to the folder."""
    return page(
        "pipeline.html",
        {
            "title": outcome.title,
            "subtitle": f"{_counted(outcome.searches, 'search', 'searches')}, "
            f"{_counted(outcome.wanted, 'retraining', 'retrainings')}",
            "complete": outcome.complete,
            "failures": Table("", tuple(outcome.failures.items())),
            "sentences": list(sentences(outcome)),
            "strips": strips(outcome),
            "trained": _linked(trained_table(outcome), [run.path for run in outcome.trained], folder),
            "searches": _linked(search_table(outcome), [run.path for run in outcome.found], folder),
            "picking": picking(outcome),
            "files": [{"name": path.name, "address": _address(path, folder)} for path in outcome.exported],
        },
    )


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


# --- in words


def sentences(outcome: PipelineOutcome) -> Iterator[str]:
    """What came out, and how sure that is."""
    tests = [run.test for run in outcome.trained if run.test is not None]
    best = outcome.best
    if tests:
        over = f"over {_counted(len(tests), 'retraining', 'retrainings')}"
        yield f"Test accuracy {spread(tests)} % {over}{_of_what(outcome)}."
    if outcome.spread is not None and outcome.spread.trainings > 1:
        told = outcome.spread.sentence
        yield told[0].upper() + told[1:]
    if best is not None:
        why = (
            f"by validation, {decimal(best.valid)} %" if best.valid is not None else "the first: nothing was held back"
        )
        yield (
            f"The model to use is that of search {best.search}, retraining {best.seed} ({why}); "
            f"its test accuracy is {decimal(best.test)} %."
        )


def _of_what(outcome: PipelineOutcome) -> str:
    if outcome.picked is not None and outcome.searches > 1:
        return f" of the best of {outcome.searches} searches"
    return f" of {_counted(len({run.search for run in outcome.trained}), 'search', 'searches')}"


def picking(outcome: PipelineOutcome) -> str:
    """By what a search was picked, if one was."""
    kinds = dict.fromkeys(FIGURES[run.figure_kind] for run in outcome.found)
    if outcome.protocol == "repeats":
        return "Every search is retrained: nothing is picked."
    if outcome.searches == 1:
        return "There is one search, and nothing to pick."
    if outcome.picked is None:
        return "The best is picked by validation when all have finished."
    return f"Search {outcome.picked} is picked by {' or '.join(kinds)}. Test images and tables take no part in that."


# --- in rows


def search_table(outcome: PipelineOutcome) -> Table:
    rows = tuple(
        (
            f"search {run.seed}" + (" (picked)" if run.seed == outcome.picked and outcome.searches > 1 else ""),
            decimal(run.figure),
            whole(run.parameters),
            duration(run.seconds),
            run.text,
        )
        for run in outcome.found
    )
    return Table("", rows, ("search", "validation", "parameters", "time", "architecture"))


def trained_table(outcome: PipelineOutcome) -> Table:
    rows = tuple(
        (
            f"search {run.search}, retraining {run.seed}" + (" (best)" if run == outcome.best else ""),
            decimal(run.test),
            decimal(run.valid),
            whole(run.parameters),
            duration(run.seconds),
        )
        for run in outcome.trained
    )
    return Table("", rows, ("model", "test, %", "validation, %", "parameters", "time"))


def _linked(table: Table, paths: Sequence[Path], folder: Path) -> Mapping[str, Any]:
    """The table with the address of a page for each row."""
    rows = [(_address(path / "report.html", folder), row) for path, row in zip(paths, table.rows, strict=True)]
    return {"columns": table.columns, "rows": rows}


def _address(path: Path, folder: Path) -> str:
    return quote(path.relative_to(folder).as_posix()) if path.is_relative_to(folder) else quote(path.as_posix())


# --- as a plot


def strips(outcome: PipelineOutcome) -> str:
    """Every retraining as a dot, in a row for each search."""
    known = [(run.search, run.test) for run in outcome.trained if run.test is not None]
    if not known:
        return ""
    seeds = list(dict.fromkeys(search for search, _ in known))

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for row, seed in enumerate(seeds):
            values = [test for search, test in known if search == seed]
            axes.plot(
                values, [row] * len(values), "o", color=PALETTE[row % len(PALETTE)], markersize=5, alpha=0.7, mew=0
            )
            centre = statistics.mean(values)
            axes.plot([centre, centre], [row - 0.32, row + 0.32], color="#111827", linewidth=1.6)
        axes.set_yticks(range(len(seeds)), [f"search {seed}" for seed in seeds])
        axes.set_ylim(len(seeds) - 0.5, -0.5)
        axes.margins(x=0.1)
        axes.set_xlabel("test accuracy, %")
        axes.grid(visible=False, axis="y")

    return svg(draw, height=0.34 * len(seeds) + 0.8, label="Test accuracy of every retraining, by search")
