"""The result of a comparison: a table over seeds, verdicts, and one reader and writer of its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from archloom.comparisons.entries import EntryResult, deviation_of, mean_of
from archloom.comparisons.plots import StripPlot
from archloom.comparisons.spec import Published
from archloom.comparisons.statistics import Verdict
from archloom.core.errors import ArchloomError
from archloom.core.json_object import JsonObject
from archloom.core.result_file import StoredResult
from archloom.reports.frames import make_frame
from archloom.reports.markup import escape
from archloom.reports.notebook import to_html
from archloom.reports.tables import UNKNOWN, Table, decimal, duration, spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VALUE = "value"  # the column of entries without a table
ALONE = "search alone"  # the column of what searches derived before their finalist race
VERDICT_FIGURES = ("difference", "low", "high", "p", "corrected", "superiority")


@dataclass(frozen=True, repr=False)
class ComparisonResult(StoredResult):
    """The result of a comparison.

    Attributes:
        title: Of the table.
        entries: What each entry found, with one result per finished seed.
        published: Figures from papers, to print beside the entries.
        verdicts: By entry: how it compares with `against`, with interval and test.
        against: The entry that the others are compared with; None if there is none.
        folder: The folder of the comparison, if known.

    Examples:
        >>> from archloom.comparisons.results import ComparisonResult
        >>> result = ComparisonResult.from_json({"title": "Mine", "against": None, "entries": [], "published": []})
        >>> print(result)
        Mine: 0 entries, 0 finished searches
    """

    file_name, version = "comparison.json", 2

    title: str
    entries: tuple[EntryResult, ...]
    published: tuple[Published, ...]
    verdicts: Mapping[str, Verdict]
    against: str | None
    folder: Path | None = None

    @property
    def datasets(self) -> tuple[str, ...]:
        """Return all data sets of the tables, that of the searches first."""
        return tuple(dict.fromkeys(name for entry in self.entries for name in entry.datasets))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the names of the compared values, each once."""
        return tuple(dict.fromkeys(entry.metric for entry in self.entries))

    @property
    def failures(self) -> dict[str, str]:
        """Return the reason of every failed search, by its name."""
        return {run: reason for entry in self.entries for run, reason in entry.failures.items()}

    @property
    def finished(self) -> int:
        """Return the number of finished searches."""
        return sum(len(entry.results) for entry in self.entries)

    @property
    def missing(self) -> int:
        """Return the number of searches that have not finished, failed ones included."""
        return sum(entry.seeds for entry in self.entries) - self.finished

    @property
    def value_columns(self) -> tuple[str, ...]:
        """Return the data sets of tables, and one more column if an entry has no table."""
        return (*self.datasets, *([VALUE] if any(not entry.datasets for entry in self.entries) else []))

    @property
    def has_races(self) -> bool:
        """Return whether a finalist race decided in some search, and a table knows what the search alone derived."""
        return any(entry.alone for entry in self.entries)

    # --- files

    @classmethod
    def from_json(cls, value: JsonObject, *, folder: Path | None = None) -> Self:
        """Return the result that `to_json` describes."""
        entries = value["entries"]
        return cls(
            title=str(value["title"]),
            entries=tuple(map(EntryResult.from_json, entries)),
            published=tuple(Published(**row) for row in value["published"]),
            verdicts={entry["entry"]: _read_verdict(entry) for entry in entries if entry["verdict"] is not None},
            against=value["against"],
            folder=folder,
        )

    def to_json(self) -> JsonObject:
        """Return what `comparison.json` holds."""
        return {
            "version": self.version,
            "title": self.title,
            "against": self.against,
            "entries": [{**self.summarize(entry), **entry.to_json()} for entry in self.entries],
            "published": [asdict(row) for row in self.published],
        }

    def summarize(self, entry: EntryResult) -> JsonObject:
        """Return all figures of an entry, with None for those that are not known: a row of `comparison.csv`."""
        summary: dict[str, object] = {
            "entry": entry.name,
            "strategy": entry.strategy,
            "metric": entry.metric,
            "seeds": entry.seeds,
            "finished": len(entry.results),
            "failed": len(entry.failures),
        }
        for column in self.value_columns:
            values = values_of(entry, column)
            summary |= {f"{column}_mean": mean_of(values), f"{column}_std": deviation_of(values)}
            summary |= {f"{column}_best": entry.best(values), f"{column}_worst": entry.worst(values)}
        if self.has_races:
            summary |= {"alone_mean": mean_of(entry.alone), "alone_std": deviation_of(entry.alone)}
        verdict = self.verdicts.get(entry.name)
        return {
            **summary,
            "regret_mean": mean_of(entry.regrets),
            "seconds_mean": entry.seconds,
            "trained_mean": entry.trainings,
            "cells": entry.cells,
            "against": self.against if verdict else None,
            **{name: getattr(verdict, name, None) for name in VERDICT_FIGURES},
            "verdict": verdict.sentence if verdict else None,
        }

    # --- what users look at

    def __repr__(self) -> str:
        lines = [f"{self.title}: {self.count_text}"]
        for entry in self.entries:
            verdict = self.verdicts.get(entry.name)
            figures = ", ".join(
                f"{spread(values_of(entry, column))} {column}"
                for column in self.value_columns
                if values_of(entry, column)
            )
            sentence = f"; {verdict.sentence}" if verdict else ""
            lines.append(f"{entry.name} ({runs_text(entry)} runs): {figures or 'no result'}{sentence}")
        return "\n".join([*lines, *([f"folder: {self.folder}"] if self.folder else [])])

    @property
    def count_text(self) -> str:
        """Return the numbers of entries and finished searches in words."""
        return f"{len(self.entries)} entries, {self.finished:,} finished searches"

    def _repr_html_(self) -> str:
        """Return the result for a notebook: the table, the verdicts and a dot per seed."""
        verdicts = Table("", tuple((name, verdict.sentence) for name, verdict in self.verdicts.items()))
        plot = self._plot_seeds()
        title = f"<h4>{escape(self.title)}</h4><p>{escape(self.count_text)}</p>"
        return f"<div>{title}{to_html(self.to_table())}{to_html(verdicts)}{plot.to_svg() if plot else ''}</div>"

    def to_table(self) -> Table:
        """Return a row per entry, with published figures of the same name below it and the others at the end."""
        columns, alone = self.value_columns, [ALONE] if self.has_races else []
        published = {
            row.name: (
                f"{row.name} (published)",
                UNKNOWN,
                *(decimal(row.figures.get(column)) for column in columns),
                *[UNKNOWN] * (6 + len(alone)),
            )
            for row in self.published
        }
        rows = []
        for entry in self.entries:
            same = [name for name in published if name.casefold() == entry.name.casefold()]
            rows += [_to_row(entry, columns, alone=self.has_races), *(published.pop(name) for name in same)]
        heads = ("entry", "runs", *columns, *alone, "best", "worst", "regret", "time", "trained", "cells")
        return Table("", (*rows, *published.values()), heads)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row per finished search.

        Returns:
            The frame, with the columns entry, strategy, seed, value, one per data set of the table, regret, seconds,
            trainings and text.

        Raises:
            ArchloomError: If pandas is not installed.
        """
        return make_frame(
            [
                {
                    "entry": entry.name,
                    "strategy": entry.strategy,
                    "seed": result.seed,
                    "value": result.value,
                    **{dataset: result.tests.get(dataset) for dataset in self.datasets},
                    "regret": result.regret,
                    "seconds": result.seconds,
                    "trainings": result.trainings,
                    "text": result.text,
                }
                for entry in self.entries
                for result in entry.results
            ]
        )

    def plot(self) -> Figure:
        """Return a matplotlib figure with a line per entry and a dot per seed.

        Returns:
            The figure, on a white background.

        Raises:
            ArchloomError: If no search has finished.
        """
        plot = self._plot_seeds()
        if plot is None:
            raise ArchloomError("plot() needs a finished search, and this comparison has none yet")
        return plot.to_figure()

    def _plot_seeds(self) -> StripPlot | None:
        return StripPlot.of(self.entries, self.published, self.datasets[0] if self.datasets else "")


def _read_verdict(value: JsonObject) -> Verdict:
    return Verdict(str(value["verdict"]), *(value[name] for name in VERDICT_FIGURES))


def values_of(entry: EntryResult, column: str) -> list[float]:
    """Return the results of an entry in a column of the table."""
    return (entry.values if not entry.datasets else []) if column == VALUE else entry.tests(column)


def _to_row(entry: EntryResult, columns: tuple[str, ...], *, alone: bool) -> tuple[str, ...]:
    return (
        entry.name,
        runs_text(entry),
        *(spread(values_of(entry, column)) for column in columns),
        *([spread(entry.alone)] if alone else []),
        decimal(entry.best(entry.values)),
        decimal(entry.worst(entry.values)),
        spread(entry.regrets),
        duration(entry.seconds),
        _trained_text(entry),
        str(entry.cells) if entry.results else UNKNOWN,
    )


def runs_text(entry: EntryResult) -> str:
    """Return `5`, `3 of 5` or `3 of 5, 1 failed`."""
    count = len(entry.results)
    done = str(entry.seeds) if count == entry.seeds else f"{count} of {entry.seeds}"
    return f"{done}, {len(entry.failures)} failed" if entry.failures else done


def _trained_text(entry: EntryResult) -> str:
    """Return the mean number of architectures trained alone; a one-shot search trains none."""
    mean = entry.trainings
    return UNKNOWN if mean is None else "0" if not entry.black_box else f"{mean:,.1f}".removesuffix(".0")
