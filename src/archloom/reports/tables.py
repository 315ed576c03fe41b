"""Numbers in the words and tables that a reader expects: units, thousands, and a dash for what is not known."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from archloom.reports.history import History, find, has_trials, known, last_record_with, metric_names, number, series

UNKNOWN = "–"


@dataclass(frozen=True)
class Table:
    """Rows of text under a heading; `columns` is empty for a list of facts."""

    heading: str
    rows: tuple[tuple[str, ...], ...]
    columns: tuple[str, ...] = ()


def finalists_table(result: Mapping[str, Any] | None) -> Table:
    """A row per architecture that was trained for a short while to decide, the best first."""
    found = (result or {}).get("finalists")
    rows = tuple(
        (
            str(place),
            whole(find(row, "steps")),
            decimal(find(row, "valid_loss"), digits=3),
            percent(find(row, "valid_accuracy")),
            whole(find(row, "parameters")),
            str(find(row, "text")),
        )
        for place, row in enumerate(found if isinstance(found, list | tuple) else (), start=1)
    )
    judged = ("validation loss", "validation accuracy", "parameters")
    return Table("", rows, ("place", "steps", *judged, "architecture"))


# --- numbers


def decimal(value: object, *, digits: int = 2, unit: str = "") -> str:
    """`93.10`, with its unit."""
    finite = number(value)
    return UNKNOWN if math.isnan(finite) else f"{finite:,.{digits}f}{unit}"


def whole(value: object, *, unit: str = "") -> str:
    """`15,625`."""
    return decimal(value, digits=0, unit=unit)


def percent(fraction: object) -> str:
    """`33.00 %` of 0.33."""
    return decimal(100 * number(fraction), unit=" %")


def duration(seconds: object) -> str:
    """`12 ms`, `3.1 s`, `2 min 5 s`, `1 h 2 min`."""
    value = number(seconds)
    if math.isnan(value):
        return UNKNOWN
    if value < 1:
        return f"{1000 * value:.0f} ms"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


# --- tables


def cost_facts(cost: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """What the network costs, as far as it is known."""
    names = {"parameters": "Parameters", "multiply_adds": "Multiply-adds"}
    return [(label, whole(find(cost, key))) for key, label in names.items() if find(cost, key) is not None]


def standing_facts(standing: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How a table of known scores ranks an architecture."""
    return [
        ("Data set of the table", str(find(standing, "dataset") or UNKNOWN)),
        ("Test accuracy in the table", decimal(find(standing, "test"), unit=" %")),
        ("Validation accuracy in the table", decimal(find(standing, "valid"), unit=" %")),
        ("Rank", f"{whole(find(standing, 'rank'))} of {whole(find(standing, 'count'))}"),
        ("Regret (points below the best)", decimal(find(standing, "regret"))),
    ]


def standing_sentence(standing: Mapping[str, Any]) -> str:
    """The same in plain words."""
    test, regret = number(find(standing, "test")), number(find(standing, "regret"))
    rank, count = number(find(standing, "rank")), number(find(standing, "count"))
    parts = [f"Trained alone, it reaches {decimal(test)} % on the test images of {find(standing, 'dataset')}"]
    if rank == 1:
        parts.append(f"the best of the {whole(count)} architectures in the table")
    elif not math.isnan(rank / count if count else math.nan):
        parts.append(
            f"rank {whole(rank)} of {whole(count)}, ahead of {decimal(100 * (count - rank) / count, digits=1)} %"
        )
    if regret > 0:
        parts.append(f"{decimal(regret)} points below the best")
    return ", ".join(parts) + "."


def timing_facts(history: History, run: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """How long the run took, how fast it was, and what memory it needed."""
    seconds, speed = known(series(history, "seconds")), known(series(history, "images_per_second"))
    memory = known([number(find(run, "peak_memory_mb")), *series(history, "memory_mb")])
    step = "trial" if has_trials(history) else "epoch"
    total = find(run, "seconds")
    facts = [
        ("Total time", duration(total if total is not None else sum(seconds) if seconds else None)),
        (f"Records ({step}s)", whole(len(history))),
        (f"Mean time per {step}", duration(sum(seconds) / len(seconds) if seconds else None)),
    ]
    if speed:
        facts.append(("Images per second, mean", whole(sum(speed) / len(speed))))
    facts.append(("Peak memory", whole(max(memory) if memory else None, unit=" MB")))
    for key, label in {"device": "Device", "threads": "Threads", "finished": "Finished"}.items():
        if find(run, key) is not None:
            facts.append((label, str(find(run, key))))
    return facts


def settings_tables(settings: Mapping[str, Any]) -> list[Table]:
    """A table per section of a configuration; what stands in no section comes first."""
    loose = {key: value for key, value in settings.items() if not isinstance(value, Mapping)}
    sections = {str(key): value for key, value in settings.items() if isinstance(value, Mapping)}
    tables = [Table(name, tuple(_flat(section))) for name, section in {"general": loose, **sections}.items()]
    return [table for table in tables if table.rows]


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _setting(value)


def _setting(value: object) -> str:
    """A value as a configuration writes it, lists without brackets."""
    if value is None or value in ("", {}, [], ()):
        return UNKNOWN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(_setting(item) for item in value)
    return str(value)


@dataclass(frozen=True)
class _Column:
    """What a column is called, where its value stands in a record, and how it is written."""

    name: str
    path: tuple[str, ...]
    write: Callable[[object], str]


def record_table(history: History) -> Table:
    """Every record in a row; columns that no record fills are left out."""
    columns = [column for column in _columns(history) if last_record_with(history, *column.path) is not None]
    rows = tuple(tuple(column.write(find(record, *column.path)) for column in columns) for record in history)
    heading = "Every trial" if has_trials(history) else "Every epoch"
    return Table(heading, rows, tuple(column.name for column in columns))


def _columns(history: History) -> list[_Column]:
    metrics = [_Column(name.replace("_", " "), ("metrics", name), _metric) for name in metric_names(history)]
    return [
        _Column("epoch", ("epoch",), whole),
        _Column("trial", ("trial",), whole),
        _Column("seconds", ("seconds",), decimal),
        _Column("images/s", ("images_per_second",), whole),
        _Column("memory, MB", ("memory_mb",), whole),
        *metrics,
        _Column("derived accuracy", ("derived_accuracy",), percent),
        _Column("score", ("score",), decimal),
        _Column("best", ("best",), decimal),
        _Column("table test, %", ("standing", "test"), decimal),
        _Column("rank", ("standing", "rank"), whole),
    ]


def _metric(value: object) -> str:
    """Four significant digits: metrics differ widely in size."""
    finite = number(value)
    return UNKNOWN if math.isnan(finite) else f"{finite:.4g}"


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation of a sample."""
    if not values:
        return UNKNOWN
    return decimal(statistics.mean(values)) + (f" ± {decimal(statistics.stdev(values))}" if len(values) > 1 else "")
