"""The page of a pipeline: how good the models are, which search was picked and why, and every run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from archloom.pipelines.evaluation import FIGURES
from archloom.pipelines.plots import draw_models, tabulate_models
from archloom.pipelines.results import PipelineResult, count_text
from archloom.reports.pages import render_template
from archloom.reports.pictures import Picture
from archloom.reports.tables import Table


def render_pipeline(result: PipelineResult, folder: Path) -> str:
    """Return the whole page; its links are relative to the folder."""

    def address(path: Path) -> str:
        return _address(path if path in result.exported else path / "report.html", folder)

    return render_template("pipeline.html", make_context(result, address))


def make_context(result: PipelineResult, address: Callable[[Path], str]) -> dict[str, object]:
    """Return what the template of the page needs; `address` returns that of a run or of a file."""
    models = "" if result.model_count is None else f", {count_text(result.model_count, 'retraining', 'retrainings')}"
    tests = result.tests_by_search
    return {
        "title": result.title,
        "subtitle": f"{count_text(result.search_count, 'search', 'searches')}{models}",
        "complete": result.complete,
        "failures": Table("", tuple(result.failures.items())),
        "sentences": result.sentences,
        "strips": Picture("models", "Trained from scratch", lambda: draw_models(tests), lambda: tabulate_models(tests)),
        "trained": _add_links(result.tabulate_models(), [model.path for model in result.models], address),
        "searches": _add_links(result.tabulate_searches(), [found.path for found in result.searches], address),
        "picking": explain_picking(result),
        "files": [{"name": path.name, "address": address(path)} for path in result.exported],
    }


def explain_picking(result: PipelineResult) -> str:
    """Return how a search was picked, if one was."""
    kinds = dict.fromkeys(FIGURES[found.figure_kind] for found in result.searches)
    if result.protocol == "repeats":
        return "Every search is retrained: none is picked."
    if result.search_count == 1:
        return "There is one search, and nothing to pick."
    if result.picked is None:
        return "The best search is picked by validation when all have finished."
    return f"Search {result.picked} was picked by {' or '.join(kinds)}. Test images and tables were not used."


def _add_links(table: Table, paths: Sequence[Path], address: Callable[[Path], str]) -> Mapping[str, object]:
    """Return the table with the address of a run for each row."""
    rows = [(address(path), row) for path, row in zip(paths, table.rows, strict=True)]
    return {"columns": table.columns, "rows": rows}


def _address(path: Path, folder: Path) -> str:
    return quote(path.relative_to(folder).as_posix()) if path.is_relative_to(folder) else quote(path.as_posix())
