"""The page of a pipeline: how good the models are, which search was picked and why, and every run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from archloom.core.counts import count_text
from archloom.core.errors import ArchloomError
from archloom.core.json_object import JsonObject
from archloom.core.metrics import Metric
from archloom.core.result_file import read_result_file
from archloom.core.trust import UntrustedError
from archloom.execution.run_folder import RunFolder
from archloom.pipelines.evaluation import FIGURES
from archloom.pipelines.plots import Tests, draw_models, tabulate_models
from archloom.pipelines.results import PipelineResult
from archloom.pipelines.source import RETRAININGS, SEARCHES
from archloom.reports.cautions import split_warnings
from archloom.reports.pages import render_template
from archloom.reports.pictures import Picture
from archloom.reports.tables import Table
from archloom.retrainings.folder import RetrainFolder
from archloom.retrainings.report import make_context as make_retrain_context
from archloom.retrainings.result import list_graphs, read_records, read_retrain_result
from archloom.searches.result import VERSION as SEARCH_VERSION
from archloom.spaces.base import CellGraph


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
        "strips": _picture_models(tests, result.measure),
        "trained": _add_links(result.tabulate_models(), [model.path for model in result.models], address),
        "searches": _add_links(result.tabulate_searches(), [found.path for found in result.searches], address),
        "picking": explain_picking(result),
        "files": [{"name": path.name, "address": address(path)} for path in result.exported],
        "warnings": _list_warnings(result),
        **_describe_best(result),
    }


def _picture_models(tests: Tests, measure: Metric) -> Picture | str:
    """Return a dot per model; nothing for a single one, which the table tells better."""
    if sum(map(len, tests.values())) < 2:
        return ""
    return Picture(
        "models", "Trained from scratch", lambda: draw_models(tests, measure), lambda: tabulate_models(tests, measure)
    )


def _describe_best(result: PipelineResult) -> dict[str, object]:
    """Return the cells and the learning curves of the model to use."""
    nothing: dict[str, object] = {"drawing": "", "cell_count": 0, "architecture": "", "curves": "", "best_name": ""}
    if result.best is None or result.folder is None:
        return nothing
    path = result.folder / RETRAININGS / result.best.path.name  # not where the file says: only this folder is read
    try:
        run = RetrainFolder.open(path)
        context = make_retrain_context(path, run.config, read_records(run), read_retrain_result(run), _graphs(run))
    except ArchloomError:
        return nothing
    name = f"Search {result.best.search}, retraining {result.best.seed}"
    shown = {key: context[key] for key in ("drawing", "cell_count", "architecture", "curves")}
    return {**shown, "best_name": name}


def _graphs(run: RunFolder) -> Sequence[CellGraph]:
    config = run.config
    try:
        return list_graphs(config.get("space", {}), config.get("architecture", {}))
    except UntrustedError:  # a plug-in: pages do not import it
        return ()


def _list_warnings(result: PipelineResult) -> list[str]:
    """Return what is to be known of the runs before their figures: warnings of searches, models that only guess."""
    lines: list[str] = []
    if result.folder is None:
        return lines
    for found in result.searches:
        path = result.folder / SEARCHES / found.path.name / "architecture.json"
        verdict = _read_or_none(path, lambda value: str(value.get("verdict", ""))) or ""
        lines += [f"Search {found.seed}: {line}" for line in split_warnings(verdict)[0]]
    for model in result.models:
        run = RetrainFolder(result.folder / RETRAININGS / model.path.name)
        try:
            trained = read_retrain_result(run)
        except ArchloomError:
            continue
        if trained is not None and trained.caution:
            lines.append(f"Search {model.search}, retraining {model.seed}: {trained.caution}")
    return lines


def _read_or_none(path: Path, parse: Callable[[JsonObject], str]) -> str | None:
    try:
        return read_result_file(path, parse, version=SEARCH_VERSION)
    except ArchloomError:
        return None


def explain_picking(result: PipelineResult) -> str:
    """Return how a search was picked, if one was."""
    kinds = dict.fromkeys(FIGURES[found.figure_kind].format(metric=result.metric) for found in result.searches)
    if result.protocol == "repeats":
        return "Every search is retrained: none is picked."
    if result.search_count == 1:
        return "There is one search, and nothing to pick."
    if result.picked is None:
        return "The best search is picked by validation when all have finished."
    return f"Search {result.picked} was picked by {' or '.join(kinds)}. Test data and tables were not used."


def _add_links(table: Table, paths: Sequence[Path], address: Callable[[Path], str]) -> Mapping[str, object]:
    """Return the table with the address of a run for each row."""
    rows = [(address(path), row) for path, row in zip(paths, table.rows, strict=True)]
    return {"columns": table.columns, "rows": rows}


def _address(path: Path, folder: Path) -> str:
    return quote(path.relative_to(folder).as_posix()) if path.is_relative_to(folder) else quote(path.as_posix())
