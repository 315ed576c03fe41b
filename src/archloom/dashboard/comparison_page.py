"""The page of a comparison: it fills up seed by seed, and has verdicts only when all planned seeds are in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from archloom.benchmarks.base import TableEntry
from archloom.comparisons.entries import EntryResult, SeedResult
from archloom.comparisons.report import make_context
from archloom.comparisons.results import ComparisonResult
from archloom.core.json_object import JsonObject, number
from archloom.core.metrics import ACCURACY, METRICS, Metric
from archloom.core.score_names import rename_scores
from archloom.core.seeds import parse_seeds
from archloom.core.settings import Settings, read_toml
from archloom.dashboard.folders import Folder
from archloom.dashboard.growing_file import RecordFile, parse_object
from archloom.dashboard.page import Page
from archloom.dashboard.summaries import Summary
from archloom.searches.history import best_trial, epochs_of, trials_of
from archloom.searches.records import read_record


@dataclass(frozen=True)
class Cell:
    """One seed of one entry: where it is, and its state."""

    seed: int
    summary: Summary | None  # None: it has not begun


@dataclass(frozen=True)
class Row:
    """One entry with all its planned seeds."""

    name: str
    cells: tuple[Cell, ...]


def make_comparison_page(folder: Folder, summary: Summary, members: Sequence[Summary]) -> Page:
    """Return the page of a comparison as it is now."""
    settings = read_toml(folder.path / "comparison.toml")
    rows = list_rows(settings, folder.key, members)
    result = read_comparison(folder.path, settings, rows, is_running=summary.state == "running")
    pending = result.missing - len(result.failures)
    if pending:
        result = without_verdicts(result)
    more = {
        "panels": "comparison_panels.html",
        "rows_of_seeds": rows,
        "planned": summary.total,
        "pending": pending,
        "subtitle": folder.key,
    }
    version = "-".join(f"{member.done}{member.state[0]}" for member in members)
    return Page("comparison.html", {**make_context(result), **more}, f"{version}-{folder.changed}")


def list_rows(settings: Settings, key: str, members: Sequence[Summary]) -> list[Row]:
    """Return every planned seed of every entry with its state."""
    by_key = {member.key: member for member in members}
    default = settings.get("seeds", "0-4")
    return [
        Row(
            str(name),
            tuple(
                Cell(seed, by_key.get(f"{key}/runs/{name}-{seed}")) for seed in parse_seeds(entry.get("seeds", default))
            ),
        )
        for name, entry in settings["entry"].items()
    ]


def read_comparison(path: Path, settings: Settings, rows: Sequence[Row], *, is_running: bool) -> ComparisonResult:
    """Return the result in the folder; while searches run, and before there is one, what finished so far."""
    if not is_running and (path / ComparisonResult.file_name).is_file():
        return ComparisonResult.read(path)
    found = [_read_entry(path, row, settings["entry"][row.name]) for row in rows]
    tables = tuple(dict.fromkeys(name for entry in found for name in entry.datasets))
    entries = tuple(entry if entry.results else replace(entry, datasets=tables) for entry in found)
    return ComparisonResult(
        title=str(settings.get("title", path.name)), entries=entries, published=(), verdicts={}, against=None
    )


def without_verdicts(result: ComparisonResult) -> ComparisonResult:
    """Return the comparison without its verdicts: looking at p-values while seeds come in invites stopping early."""
    return ComparisonResult(result.title, result.entries, result.published, {}, result.against, result.folder)


def _read_entry(path: Path, row: Row, settings: Settings) -> EntryResult:
    """Return the finished searches of an entry, from their own files alone."""
    found = [
        (cell.seed, value)
        for cell in row.cells
        if cell.summary is not None and cell.summary.state == "finished"
        if (value := _read_object(path / "runs" / f"{row.name}-{cell.seed}" / "architecture.json")) is not None
    ]
    results = tuple(_read_seed(seed, value, path / "runs" / f"{row.name}-{seed}") for seed, value in found)
    tables = tuple(dict.fromkeys(name for result in results for name in result.tests))
    trained = any(result.trainings for result in results)
    measure = next((_measure_of(value) for _, value in found), ACCURACY)
    return EntryResult(
        name=row.name,
        strategy=str(dict(settings.get("strategy") or {}).get("name", "?")),
        black_box=trained,
        metric=f"test accuracy in the {tables[0]} table" if tables else f"{measure.name}, as its search measured it",
        datasets=tables,
        results=results,
        seeds=len(row.cells),
        figure=measure.name,
    )


def _measure_of(result: JsonObject) -> Metric:
    return METRICS.get(str(result.get("metric")), ACCURACY)


def _read_seed(seed: int, value: JsonObject, path: Path) -> SeedResult:
    run, shared = value.get("run") or {}, number(rename_scores(value).get("shared_score"))
    found = value.get("table_entry", value.get("standing"))  # the second is the name of the first edition
    entry = found and TableEntry.from_json(found)
    records = RecordFile(path / "metrics.jsonl", read_record)
    records.update()
    trials, epochs = trials_of(records.records), epochs_of(records.records)
    known = [record.table_entry.test for record in epochs if record.table_entry is not None]
    own = _measure_of(value).to_value(best_trial(trials).score / 100 if trials else shared)
    return SeedResult(
        seed=seed,
        text=str(value.get("text", "")),
        value=entry.test if entry else None if math.isnan(own) else own,
        tests={entry.dataset: entry.test} if entry else {},
        regret=entry.regret if entry else None,
        seconds=number(run.get("seconds")),
        trainings=trials[-1].trainings if trials else 0.0,
        curve=tuple(known) if len(known) == len(epochs) else (),
    )


def _read_object(path: Path) -> JsonObject | None:
    try:
        return parse_object(path.read_bytes())
    except OSError:
        return None
