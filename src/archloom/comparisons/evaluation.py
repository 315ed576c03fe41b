"""Evaluate a comparison from the folders of its searches: results of every entry, and verdicts at matched cost."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from archloom.comparisons.entries import EntryResult
from archloom.comparisons.entry_reader import ROUNDING, EntryReader, FinishedSearch, Unit
from archloom.comparisons.results import ComparisonResult
from archloom.comparisons.spec import ComparisonSpec
from archloom.comparisons.statistics import Pair, Verdict, compare_pairs
from archloom.core.errors import ArchloomError, SettingError
from archloom.searches.jobs import SearchJob


@dataclass(frozen=True)
class _Side:
    """One side of a pair: an entry, and how to read its searches."""

    reader: EntryReader
    searches: Sequence[FinishedSearch]
    entry: EntryResult


def evaluate_comparison(
    comparison: ComparisonSpec, jobs: Sequence[SearchJob], failures: Mapping[str, str], folder: Path | None = None
) -> ComparisonResult:
    """Read the finished searches and compare the entries."""
    sides = {}
    for name, contender in comparison.contenders.items():
        own, reader = [job for job in jobs if job.entry == name], EntryReader(contender, comparison)
        searches = reader.read(own)
        sides[name] = _Side(reader, searches, reader.summarize(searches, own, failures))
    return ComparisonResult(
        title=comparison.settings.title,
        entries=tuple(side.entry for side in sides.values()),
        published=comparison.published,
        verdicts={} if comparison.against is None else _compare_sides(comparison, sides, comparison.against),
        against=comparison.against,
        folder=folder,
    )


def check_limit(comparison: ComparisonSpec) -> None:
    """Raise a SettingError if a limited cost cannot be computed: before anything runs."""
    problems = []
    for contender in comparison.contenders.values() if comparison.limit else ():
        try:
            reader = EntryReader(contender, comparison)
            reader.meets_limit(contender.spec.build_space().sample(random.Random(0)))
        except ArchloomError as error:
            problems.append(f"entry {contender.name}: limit: {error}")
    if problems:
        raise SettingError(problems)


def _compare_sides(comparison: ComparisonSpec, sides: Mapping[str, _Side], against: str) -> dict[str, Verdict]:
    other = sides[against]
    same = {name for name, side in sides.items() if side.entry.metric == other.entry.metric}
    pairs = {name: _make_pair(comparison, sides[name], other) for name in sides if name != against and name in same}
    verdicts = compare_pairs(pairs, against=against)
    for name in sides.keys() - same:
        metrics = f"{sides[name].entry.metric} and {other.entry.metric}"
        verdicts[name] = Verdict(f"not compared with {against}: {metrics} are different metrics")
    return {name: verdicts[name] for name in sides if name != against}


def _make_pair(comparison: ComparisonSpec, side: _Side, other: _Side) -> Pair:
    own = [side.reader.value_within_limit(search) for search in side.searches]
    by, reason = _choose_unit(comparison, side, other)
    if by is None or not side.searches:
        theirs = [other.reader.value_within_limit(search) for search in other.searches]
        note = f"cost is not matched: {reason}"
    else:
        budget = statistics.mean(side.reader.total_cost(search, by=by) for search in side.searches)
        found = [other.reader.value_within_budget(search, budget=budget, by=by) for search in other.searches]
        theirs = [value for value, _ in found]
        note = _describe_matching(other, found, budget=budget, by=by)
    counts = {side.entry.name: own.count(None), other.entry.name: theirs.count(None)}
    where = "above the limit" if comparison.limit else "not in the table"
    excluded = ", ".join(f"{count} of {name} {where} and excluded" for name, count in counts.items() if count)
    return Pair(
        [value for value in own if value is not None],
        [value for value in theirs if value is not None],
        "; ".join(part for part in (note if side.searches else "", excluded) if part),
        side.entry.measure,
    )


def _choose_unit(comparison: ComparisonSpec, side: _Side, other: _Side) -> tuple[Unit | None, str]:
    """Return the unit of the matched cost, or None and the reason why cost cannot be matched."""
    settings, name = comparison.settings, other.entry.name
    by: Unit = settings.match or ("trials" if side.entry.black_box else "seconds")
    if not other.entry.black_box:
        return None, f"{name} is a one-shot search, which has no trials to cut"
    if by == "trials" and not side.entry.black_box:
        return None, 'a one-shot search has no trials; use match = "seconds"'
    if by == "seconds" and other.reader.looks_scores_up and settings.seconds_per_trial is None:
        return None, f"scores of {name} are looked up; set seconds_per_trial to the time of one training"
    return by, ""


def _describe_matching(other: _Side, found: Sequence[tuple[float | None, int]], *, budget: float, by: Unit) -> str:
    """Return how many trials of the other entry count, and their mean: the table shows whole searches instead."""
    values = [value for value, _ in found if value is not None]
    if not values:
        return ""
    count, name = round(statistics.mean(count for _, count in found)), other.entry.name
    trials = "trial" if count == 1 else "trials"
    note = f"at matched cost: the best of {count} {trials} in each seed of {name}, mean {statistics.mean(values):.2f}"
    most = max(other.reader.total_cost(search, by=by) for search in other.searches)
    if budget <= most + ROUNDING:
        return note
    unit = "trials" if by == "trials" else "s"
    return f"{note}; {name} ran no more trials, equal cost would be {budget:,.0f} {unit}"
