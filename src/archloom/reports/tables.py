"""Numbers as text and tables: units, thousands, and a dash for what is not known."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from archloom.core.json_object import number
from archloom.core.metrics import ACCURACY, Metric
from archloom.core.settings import Settings
from archloom.execution.run_facts import RunFacts
from archloom.reports.curves import Series, drop_unknown

if TYPE_CHECKING:  # reports need no torch
    from archloom.objectives.cost import Cost

UNKNOWN = "–"


@dataclass(frozen=True)
class Table:
    """Rows of text under a heading; `columns` is empty for a list of facts."""

    heading: str
    rows: tuple[tuple[str, ...], ...]
    columns: tuple[str, ...] = ()


# --- numbers


def decimal(value: object, *, digits: int = 2, unit: str = "") -> str:
    """Return `93.10`, with its unit."""
    finite = number(value)
    return UNKNOWN if math.isnan(finite) else f"{finite:,.{digits}f}{unit}"


def whole(value: object, *, unit: str = "") -> str:
    """Return `15,625`."""
    return decimal(value, digits=0, unit=unit)


def measured(score: float | None, metric: Metric) -> str:
    """Return a score as people read it: an accuracy in percent, or a perplexity."""
    if metric is ACCURACY or score is None:
        return percent(score)
    return decimal(metric.to_value(score))


def percent(fraction: object) -> str:
    """Return `33.00 %` of 0.33."""
    return decimal(100 * number(fraction), unit=" %")


def duration(seconds: object) -> str:
    """Return `12 ms`, `3.1 s`, `2 min 5 s`, `1 h 2 min`."""
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


def cost_facts(cost: Cost | None, *, final_network: str = "") -> list[tuple[str, str]]:
    """Return what a network costs, and which network that is."""
    if cost is None:
        return []
    counted = [("Counted in", f"the final network: {final_network}")] if final_network else []
    return [("Parameters", whole(cost.parameters)), ("Multiply-adds", whole(cost.multiply_adds)), *counted]


def timing_facts(
    unit: str, records: int, *, seconds: Sequence[float], speeds: Sequence[float], memory_mb: Sequence[float],
    run: RunFacts | None,
) -> list[tuple[str, str]]:  # fmt: skip
    """Return how long a run took, how fast it was, and how much memory it needed; `unit` is 'epoch' or 'trial'."""
    spent, fast = drop_unknown(seconds), drop_unknown(speeds)
    memory = drop_unknown([*memory_mb, *([] if run is None else [run.peak_memory_mb])])
    total = run.seconds if run is not None else sum(spent) if spent else None
    facts = [
        (f"Time of all {unit}s", duration(total)),
        (f"Records ({unit}s)", whole(records)),
        (f"Mean time per {unit}", duration(statistics.mean(spent) if spent else None)),
    ]
    if fast:
        facts.append(("Images per second, mean", whole(statistics.mean(fast))))
    facts.append(("Peak memory", whole(max(memory) if memory else None, unit=" MB")))
    if run is not None:
        known = {"Device": run.device, "Threads": run.threads, "Finished": _moment_text(run.finished)}
        facts += [(label, str(value)) for label, value in known.items() if value]
    return facts


def _moment_text(moment: str) -> str:
    """Return a time in UTC as people write it, with blanks where a line may break."""
    return moment.replace("T", " ").replace("+00:00", " UTC")


def version_table(run: RunFacts | None) -> Table:
    """Return the versions of a run, a row each."""
    return Table("", () if run is None else tuple((name, str(version)) for name, version in run.versions.items()))


def settings_tables(settings: Settings) -> list[Table]:
    """Return a table per section of a configuration; settings outside of sections come first."""
    loose = {key: value for key, value in settings.items() if not isinstance(value, Mapping)}
    sections = {str(key): value for key, value in settings.items() if isinstance(value, Mapping)}
    tables = [Table(name, tuple(_flat(section))) for name, section in {"general": loose, **sections}.items()]
    return [table for table in tables if table.rows]


def _flat(settings: Settings, prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _setting(value)


def _setting(value: object) -> str:
    """Return a value as a configuration writes it, lists without brackets."""
    if value is None or value in ("", {}, [], ()):
        return UNKNOWN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(_setting(item) for item in value)
    return str(value)


@dataclass(frozen=True)
class Column:
    """A column of figures: its name, one value per record, and how a value is written."""

    name: str
    values: Sequence[object]
    write: Callable[[object], str]


def record_table(heading: str, columns: Sequence[Column]) -> Table:
    """Return a row per record; columns without any value are left out."""
    filled = [column for column in columns if any(column.write(value) != UNKNOWN for value in column.values)]
    written = [[column.write(value) for value in column.values] for column in filled]
    return Table(heading, tuple(zip(*written, strict=True)), tuple(column.name for column in filled))


def metric_columns(metrics: Series) -> list[Column]:
    """Return a column per metric."""
    return [Column(name.replace("_", " "), values, significant) for name, values in metrics.items()]


def significant(value: object) -> str:
    """Return four significant digits: metrics differ widely in size."""
    finite = number(value)
    return UNKNOWN if math.isnan(finite) else f"{finite:.4g}"


def number_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Return the figures behind a drawing: numbers in full, nothing where one is not known."""
    return Table("", tuple(tuple(map(_in_full, row)) for row in rows), tuple(columns))


def series_table(unit: str, positions: Sequence[float], series: Series) -> Table:
    """Return a row per record: its number, and every series."""
    return number_table((unit, *series), list(zip(positions, *series.values(), strict=True)))


def _in_full(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(value)


def to_csv(table: Table) -> str:
    """Return a table as CSV. A text that a spreadsheet would take for a formula gets an apostrophe before it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if table.columns:
        writer.writerow(map(_harmless, table.columns))
    writer.writerows(map(_harmless, row) for row in table.rows)
    return text.getvalue()


def _harmless(cell: str) -> str:
    if not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def spread(values: Sequence[float]) -> str:
    """Return mean and standard deviation of a sample."""
    if not values:
        return UNKNOWN
    return decimal(statistics.mean(values)) + (f" ± {decimal(statistics.stdev(values))}" if len(values) > 1 else "")


def list_lines(facts: Mapping[str, str]) -> str:
    """Return named facts as text, a line each."""
    return "\n".join(f"{name}: {fact}" for name, fact in facts.items())
