"""Read the finished searches of one entry: scores from the benchmark table, costs, trials, and the limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from archloom.benchmarks import Benchmark
from archloom.comparisons.entries import EntryResult, SeedResult, Timing
from archloom.comparisons.spec import ComparisonSpec, Contender, ResultLimit
from archloom.core.errors import ArchloomError, BenchmarkError, SettingError
from archloom.core.metrics import ACCURACY, Metric
from archloom.families import family_of
from archloom.searches.final_network import FinalNetwork, facts_of
from archloom.searches.jobs import SearchJob
from archloom.searches.records import EpochRecord, SearchRecord, TrialRecord
from archloom.searches.result import SearchResult, read_result
from archloom.searches.spec import SearchSpec
from archloom.spaces import Architecture

ROUNDING = 1e-9  # of sums of costs

Unit = Literal["trials", "seconds"]
Measure = Callable[[Mapping[str, str]], float]
Table = tuple[Benchmark, str]  # and the name of its data set


@dataclass(frozen=True)
class ScoredTrial:
    """One architecture that a black-box search scored, and what that cost."""

    architecture: Architecture
    score: float
    trainings: float  # less than 1 if it was stopped early
    seconds: float
    may_win: bool


@dataclass(frozen=True)
class FinishedSearch:
    """A finished search: its result, and what matching its cost needs."""

    result: SeedResult
    architecture: Architecture
    trials: tuple[ScoredTrial, ...] = ()


class EntryReader:
    """Reads the searches of one entry from their folders."""

    def __init__(self, contender: Contender, comparison: ComparisonSpec) -> None:
        self.name, self.black_box = contender.name, contender.black_box
        self._spec = contender.spec
        self._seconds_per_trial = comparison.settings.seconds_per_trial
        self._space = self._spec.build_space()
        self._table = self._spec.find_table(self._space)
        self._limits = _list_limits(self._spec, self._table, comparison.limit)

    @property
    def metric(self) -> str:
        """Return the name of the value that is compared."""
        if self._table is not None:
            return f"test accuracy in the {self._table[1]} table"
        if not self.black_box:
            return f"{self._measure.name} under the shared weights of its own search"
        score = self._spec.search.score
        what = "score" if self._measure is ACCURACY else self._measure.name
        return f"best {what}, by {'training' if score == 'auto' else score}"

    @cached_property
    def _measure(self) -> Metric:
        """Return what values are; tables have accuracies."""
        return ACCURACY if self._table is not None else family_of(self._space).task.metric

    def summarize(
        self, searches: Sequence[FinishedSearch], jobs: Sequence[SearchJob], failures: Mapping[str, str]
    ) -> EntryResult:
        """Return the entry with the results of its searches; `jobs` are all that the comparison asks for."""
        return EntryResult(
            name=self.name,
            strategy=self._spec.strategy.name,
            black_box=self.black_box,
            metric=self.metric,
            datasets=self._datasets,
            results=tuple(search.result for search in searches),
            seeds=len(jobs),
            timing=self._timing,
            failures={job.name: failures[job.name] for job in jobs if job.name in failures},
            figure=self._measure.name,
        )

    @cached_property
    def _datasets(self) -> tuple[str, ...]:
        if self._table is None:
            return ()
        table, own = self._table
        return (own, *(name for name in table.datasets if name != own))

    def read(self, jobs: Sequence[SearchJob]) -> list[FinishedSearch]:
        """Return the searches that have finished."""
        searches = [self._read_search(job) for job in jobs]
        return [search for search in searches if search is not None]

    def _read_search(self, job: SearchJob) -> FinishedSearch | None:
        try:
            found = read_result(job.run_folder, self._space)
        except ArchloomError:  # damaged: it is run again, and does not count until then
            return None
        if found is None:
            return None
        trials = _list_trials(found.history)
        tests = self._look_up(found.architecture)
        measured = found.run.seconds + (found.finalists_seconds or 0.0)
        result = SeedResult(
            seed=job.seed,
            text=found.text,
            value=self._find_value(found, tests, trials),
            tests=tests,
            regret=self._best_test - tests[self._datasets[0]] if tests else None,
            seconds=sum(self.cost_of(trial, by="seconds") for trial in trials) if trials else measured,
            trainings=sum(trial.trainings for trial in trials),
            alone=self._find_value_alone(found),
            curve=_list_test_accuracies(found.history),
        )
        return FinishedSearch(result, found.architecture, trials)

    @property
    def _timing(self) -> Timing:
        if not self.black_box or not self.looks_scores_up:
            return "measured"
        return "looked up" if self._seconds_per_trial is None else "by seconds_per_trial"

    @property
    def looks_scores_up(self) -> bool:
        """Return whether scores come from a table: then measured seconds do not show what trainings would cost."""
        score, data = self._spec.search.score, self._spec.data_set.name
        return score == "table" or (score == "auto" and self._table is not None and self._table[1] == data)

    def _look_up(self, architecture: Mapping[str, str]) -> dict[str, float]:
        if self._table is None:
            return {}
        try:
            return {name: self._table[0].query(architecture, name) for name in self._datasets}
        except BenchmarkError:  # a partly converted table does not hold every architecture
            return {}

    def _find_value(
        self, found: SearchResult, tests: Mapping[str, float], trials: Sequence[ScoredTrial]
    ) -> float | None:
        if self._table is not None:
            return tests.get(self._table[1])
        if self.black_box:
            return self._measure.from_percent(max((trial.score for trial in trials if trial.may_win), default=None))
        return self._measure.from_percent(None if found.shared_score is None else 100 * found.shared_score)

    def _find_value_alone(self, found: SearchResult) -> float | None:
        """Return what the table says of the architecture that the search derived before its finalist race."""
        if self._table is None or found.race is None or found.derived is None:
            return None
        return self._look_up(found.derived).get(self._table[1])

    @cached_property
    def _best_test(self) -> float:
        assert self._table is not None
        return self._table[0].best(self._table[1])[1]

    # --- what counts

    def meets_limit(self, architecture: Mapping[str, str]) -> bool:
        """Return whether an architecture costs no more than the comparison allows."""
        return all(cost(architecture) <= most for cost, most in self._limits)

    def value_within_limit(self, search: FinishedSearch) -> float | None:
        """Return the value of a search: of its result or, if a limit holds for trials, of the best trial within it."""
        if self._limits and search.trials:
            return self.value_within_budget(search, budget=None, by="seconds")[0]
        return search.result.value if self.meets_limit(search.architecture) else None

    def value_within_budget(
        self, search: FinishedSearch, *, budget: float | None, by: Unit
    ) -> tuple[float | None, int]:
        """Return what a black-box search finds within a budget (but at least one trial), and with how many trials.

        Trials above the limit cost nothing: their cost is known before they are trained.
        """
        within = [trial for trial in search.trials if self.meets_limit(trial.architecture)]
        spent, affordable = 0.0, 0
        for trial in within:
            spent += self.cost_of(trial, by=by)
            if budget is not None and spent > budget + ROUNDING and affordable:
                break
            affordable += 1
        candidates = [trial for trial in within[:affordable] if trial.may_win]
        if not candidates:
            return None, affordable
        winner = max(candidates, key=lambda trial: trial.score)  # the first of equals
        if self._table is None:
            return self._measure.from_percent(winner.score), affordable
        return self._look_up(winner.architecture).get(self._table[1]), affordable

    def cost_of(self, trial: ScoredTrial, *, by: Unit) -> float:
        """Return the cost of one trial, in trainings or in seconds."""
        if by == "trials":
            return trial.trainings or 1.0  # under shared weights a trial trains nothing
        if self._timing == "by seconds_per_trial":
            assert self._seconds_per_trial is not None
            return trial.trainings * self._seconds_per_trial
        return trial.seconds

    def total_cost(self, search: FinishedSearch, *, by: Unit) -> float:
        """Return the cost of a whole search; of a one-shot search only seconds are known."""
        return sum(self.cost_of(trial, by=by) for trial in search.trials) if search.trials else search.result.seconds


def _list_trials(history: Sequence[SearchRecord]) -> tuple[ScoredTrial, ...]:
    trials, before = [], 0.0
    for record in history:
        if isinstance(record, TrialRecord):
            scored = not math.isnan(record.score)
            trials.append(
                ScoredTrial(
                    architecture=record.architecture,
                    score=record.score if scored else -math.inf,
                    trainings=record.trainings - before,  # records hold the sum so far
                    seconds=0.0 if math.isnan(record.seconds) else record.seconds,
                    may_win=scored and not record.pruned,
                )
            )
            before = record.trainings
    return tuple(trials)


def _list_test_accuracies(history: Sequence[SearchRecord]) -> tuple[float, ...]:
    """Return the test accuracy of the derived architecture after every epoch; nothing if a table lacks one."""
    looked_up = [record.table_entry for record in history if isinstance(record, EpochRecord)]
    known = [entry.test for entry in looked_up if entry is not None]
    return tuple(known) if len(known) == len(looked_up) else ()


# --- limits


def _list_limits(spec: SearchSpec, table: Table | None, limit: ResultLimit) -> list[tuple[Measure, float]]:
    """Return every limited cost and its limit."""
    limits: list[tuple[Measure, float]] = []
    if limit.parameters is not None:
        limits.append((_find_cost(spec, table, "params", "parameters", 1.0), limit.parameters))
    if limit.flops is not None:
        limits.append((_find_cost(spec, table, "flops_M", "multiply_adds", 1e6), limit.flops))
    if limit.latency is not None:
        device, most = limit.latency.device, limit.latency.ms
        if table is None:
            raise SettingError("latency needs a benchmark table of this space, and there is none; check --data-dir")
        benchmark = table[0]
        limits.append((lambda architecture: benchmark.latency(architecture, device), most))
    return limits


def _find_cost(spec: SearchSpec, table: Table | None, column: str, attribute: str, factor: float) -> Measure:
    """Return a cost from the table, whose networks were trained, or else of the final network."""
    if table is not None and column in table[0].metrics:
        benchmark, dataset = table
        return lambda architecture: factor * benchmark.query(architecture, dataset, metric=column)
    costs = FinalNetwork.of(spec, facts_of(spec, None)).cost_table()
    return lambda architecture: float(getattr(costs.cost(architecture), attribute))
