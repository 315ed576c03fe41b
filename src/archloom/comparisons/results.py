"""What a comparison found: every finished run read from disk, and a verdict at matched cost for every entry."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from archloom.benchmarks import Benchmark, find_benchmark
from archloom.comparisons.spec import ComparisonSpec, Contender, Limit, Published
from archloom.comparisons.statistics import Pair, Verdict, compare_pairs
from archloom.core.errors import ArchloomError, BenchmarkError, SettingError
from archloom.data import Facts
from archloom.objectives import CostTable
from archloom.searches.jobs import SearchJob
from archloom.searches.spec import SearchSpec

ROUNDING = 1e-9  # sums of costs


Timing = Literal["measured", "looked up", "by seconds_per_trial"]
"""Where the seconds of an entry come from: trials that are looked up take next to none themselves."""


@dataclass(frozen=True)
class Tried:
    """One architecture that a black-box search scored, and what that cost."""

    architecture: Mapping[str, str]
    score: float
    trainings: float = 1.0  # less than 1 where it was given up early
    seconds: float = 0.0
    may_win: bool = True


@dataclass(frozen=True)
class Result:
    """What one finished run found, and what it cost."""

    seed: int
    text: str
    architecture: Mapping[str, str]
    value: float | None  # of the metric; None where a table in part does not know it
    tests: Mapping[str, float]  # by data set of the table
    regret: float | None
    seconds: float
    trainings: float
    trials: tuple[Tried, ...] = ()
    curve: tuple[float, ...] = ()  # of a one-shot search: what its architecture would reach after every epoch


@dataclass(frozen=True)
class Row:
    """An entry: all that its seeds found."""

    name: str
    strategy: str
    black_box: bool
    metric: str
    datasets: tuple[str, ...]
    results: tuple[Result, ...]
    seeds: int  # asked for
    timing: Timing = "measured"
    failures: Mapping[str, str] = field(default_factory=dict)  # by run: why

    @property
    def values(self) -> list[float]:
        return [result.value for result in self.results if result.value is not None]

    def tests(self, dataset: str) -> list[float]:
        return [result.tests[dataset] for result in self.results if dataset in result.tests]

    @property
    def cells(self) -> int:
        """Different architectures found."""
        return len({result.text for result in self.results})


@dataclass(frozen=True)
class Outcome:
    """The whole table."""

    title: str
    rows: tuple[Row, ...]
    published: tuple[Published, ...]
    verdicts: Mapping[str, Verdict]
    against: str | None

    @property
    def datasets(self) -> tuple[str, ...]:
        """All that tables know, that of the searches first."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.datasets))

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.metric for row in self.rows))

    @property
    def failures(self) -> dict[str, str]:
        return {run: line for row in self.rows for run, line in row.failures.items()}

    @property
    def missing(self) -> int:
        """Runs that are not finished, failed ones included."""
        return sum(row.seeds - len(row.results) for row in self.rows)


def outcome_of(comparison: ComparisonSpec, jobs: Sequence[SearchJob], failures: Mapping[str, str]) -> Outcome:
    """Read what is finished, and judge it."""
    readers = {name: Reader(contender, comparison) for name, contender in comparison.contenders.items()}
    rows = {name: reader.row([job for job in jobs if job.entry == name], failures) for name, reader in readers.items()}
    verdicts = {} if comparison.against is None else _verdicts(comparison, readers, rows)
    return Outcome(comparison.settings.title, tuple(rows.values()), comparison.published, verdicts, comparison.against)


class Reader:
    """Reads the runs of one entry: scores from the table that knows them, costs, trials."""

    def __init__(self, contender: Contender, comparison: ComparisonSpec) -> None:
        self.contender = contender
        self._experiment = contender.experiment
        self._settings, self._limit = comparison.settings, comparison.limit
        self._space = self._experiment.build_space()
        self._found = find_benchmark(
            self._space, self._experiment.names["data"], self._experiment.settings["data"]["directory"]
        )
        self._costs = _costs(self._experiment, self._found, self._limit)

    @property
    def metric(self) -> str:
        if self._found is not None:
            return f"test accuracy in the {self._found[1]} table"
        if not self.contender.black_box:
            return "accuracy under the shared weights of its own search"
        how = self._experiment.settings["search"]["score"]
        return f"best score, by {'training' if how == 'auto' else how}"

    def row(self, jobs: Sequence[SearchJob], failures: Mapping[str, str]) -> Row:
        results = [self._read(job) for job in jobs]
        return Row(
            name=self.contender.name,
            strategy=self._experiment.names["strategy"],
            black_box=self.contender.black_box,
            metric=self.metric,
            datasets=self._datasets,
            results=tuple(result for result in results if result is not None),
            seeds=len(jobs),
            timing=self._timing,
            failures={job.name: failures[job.name] for job in jobs if job.name in failures},
        )

    @cached_property
    def _datasets(self) -> tuple[str, ...]:
        if self._found is None:
            return ()
        table, own = self._found
        return (own, *(name for name in table.datasets if name != own))

    def _read(self, job: SearchJob) -> Result | None:
        try:
            details = job.run_folder.read_result()
            history = [] if details is None else job.run_folder.read_metrics()
        except ArchloomError:  # damaged: it is run again, and until then it is not there
            return None
        if details is None:
            return None
        trials = _trials(history) if self.contender.black_box else ()
        tests = self._tests(details["architecture"])
        trainings = sum(trial.trainings for trial in trials)
        measured = details["run"]["seconds"] + (details.get("finalists_seconds") or 0.0)
        return Result(
            seed=job.seed,
            text=details["text"],
            architecture=details["architecture"],
            value=self._value(details, tests, trials),
            tests=tests,
            regret=self._regret(tests),
            seconds=sum(self.cost_of(trial, by="seconds") for trial in trials) if trials else measured,
            trainings=trainings,
            trials=trials,
            curve=() if self.contender.black_box else _curve(history),
        )

    @property
    def _timing(self) -> Timing:
        if not self.contender.black_box or not self.looks_up:
            return "measured"
        return "looked up" if self._settings.seconds_per_trial is None else "by seconds_per_trial"

    @property
    def looks_up(self) -> bool:
        """Whether scores come from a table, so that measured seconds say nothing of what they would cost."""
        score, data = self._experiment.settings["search"]["score"], self._experiment.names["data"]
        return score == "table" or (score == "auto" and self._found is not None and self._found[1] == data)

    def _tests(self, architecture: Mapping[str, str]) -> dict[str, float]:
        if self._found is None:
            return {}
        try:
            return {name: self._found[0].query(architecture, name) for name in self._datasets}
        except BenchmarkError:  # a table converted in part does not know every architecture
            return {}

    def _value(self, details: Mapping[str, Any], tests: Mapping[str, float], trials: Sequence[Tried]) -> float | None:
        if self._found is not None:
            return tests.get(self._found[1])
        if self.contender.black_box:
            return max((trial.score for trial in trials if trial.may_win), default=None)
        shared = details.get("shared_accuracy")
        return None if shared is None else 100 * shared

    def _regret(self, tests: Mapping[str, float]) -> float | None:
        return self._best - tests[self._datasets[0]] if tests else None

    @cached_property
    def _best(self) -> float:
        assert self._found is not None
        return self._found[0].best(self._found[1])[1]

    # --- what counts

    def allowed(self, architecture: Mapping[str, str]) -> bool:
        """Whether an architecture keeps to the limit of the comparison."""
        return all(cost(architecture) <= most for cost, most in self._costs)

    def final(self, result: Result) -> float | None:
        """The value of a run within the limit: of its result or, in a black-box search, of the best trial within."""
        if self._costs and result.trials:
            return self.best_of(result, budget=None, cost=lambda trial: 0.0)[0]
        return result.value if self.allowed(result.architecture) else None

    def best_of(
        self, result: Result, *, budget: float | None, cost: Callable[[Tried], float]
    ) -> tuple[float | None, int]:
        """What a black-box search would have found with so much to spend, at least one trial, and with how many.

        Trials above the limit cost nothing: that they are is known before they are trained.
        """
        within = [trial for trial in result.trials if self.allowed(trial.architecture)]
        spent, affordable = 0.0, 0
        for trial in within:
            spent += cost(trial)
            if budget is not None and spent > budget + ROUNDING and affordable:
                break
            affordable += 1
        first = [trial for trial in within[:affordable] if trial.may_win]
        if not first:
            return None, affordable
        winner = max(first, key=lambda trial: trial.score)  # the first of equals
        tests = self._tests(winner.architecture)
        return (winner.score if self._found is None else tests.get(self._found[1])), affordable

    def cost_of(self, trial: Tried, *, by: str) -> float:
        """What one trial costs, in trainings or in seconds."""
        if by == "trials":
            return trial.trainings or 1.0  # under weights that are trained already, a trial trains nothing
        if self._timing == "by seconds_per_trial":
            assert self._settings.seconds_per_trial is not None
            return trial.trainings * self._settings.seconds_per_trial
        return trial.seconds

    def spent(self, result: Result, *, by: str) -> float:
        """What a whole search cost; of a one-shot search only seconds are known."""
        return sum(self.cost_of(trial, by=by) for trial in result.trials) if result.trials else result.seconds


def _trials(history: Sequence[Mapping[str, Any]]) -> tuple[Tried, ...]:
    """The trials of a black-box search. A record tells the trainings so far; without it each trial was one."""
    trials, before = [], 0.0
    for place, record in enumerate(history):
        total = float(record.get("trainings", place + 1))
        pruned, score = bool(record.get("pruned")), record.get("score")
        trials.append(
            Tried(
                architecture=record["architecture"],
                score=float("-inf") if score is None else float(score),
                trainings=total - before,
                seconds=float(record.get("seconds") or 0.0),
                may_win=not pruned and score is not None,
            )
        )
        before = total
    return tuple(trials)


def _curve(history: Sequence[Mapping[str, Any]]) -> tuple[float, ...]:
    standings = [record.get("table_entry", record.get("standing")) for record in history]
    return tuple(standing["test"] for standing in standings if standing) if all(standings) else ()


# --- limits

Measure = Callable[[Mapping[str, str]], float]


def check_limit(comparison: ComparisonSpec) -> None:
    """Find out before anything runs whether the costs that a limit speaks of can be told."""
    problems = []
    for contender in comparison.contenders.values() if comparison.limit else ():
        try:
            reader = Reader(contender, comparison)
            reader.allowed(contender.experiment.build_space().sample(random.Random(0)))
        except ArchloomError as error:
            problems.append(f"entry {contender.name}: limit: {error}")
    if problems:
        raise SettingError(problems)


def _costs(experiment: SearchSpec, found: tuple[Benchmark, str] | None, limit: Limit) -> list[tuple[Measure, float]]:
    """What is limited, and how much of it there may be."""
    costs: list[tuple[Measure, float]] = []
    if limit.parameters is not None:
        costs.append((_counted(experiment, found, "params", "parameters", 1.0), limit.parameters))
    if limit.flops is not None:
        costs.append((_counted(experiment, found, "flops_M", "multiply_adds", 1e6), limit.flops))
    if limit.latency is not None:
        device, most = limit.latency["device"], float(limit.latency["ms"])
        if found is None:
            raise SettingError("latency needs a benchmark table, and none knows this space; check --data-dir")
        table = found[0]
        costs.append((lambda architecture: table.latency(architecture, device), most))
    return costs


def _counted(
    experiment: SearchSpec, found: tuple[Benchmark, str] | None, column: str, attribute: str, factor: float
) -> Measure:
    """A cost by the table, whose networks are those that were trained; else of the network that is searched."""
    if found is not None and column in found[0].metrics:
        table, dataset = found
        return lambda architecture: factor * table.query(architecture, dataset, metric=column)
    facts = experiment.facts
    if facts is None:
        data = experiment.load_data()
        facts = Facts(len(data.classes), (data.channels, *data.resolution))
    network = experiment.settings["network"]
    costs = CostTable(experiment.build_space(), classes=facts.classes, image_shape=facts.image_shape, **network)
    return lambda architecture: float(getattr(costs.cost(architecture), attribute))


# --- verdicts


def _verdicts(comparison: ComparisonSpec, readers: Mapping[str, Reader], rows: Mapping[str, Row]) -> dict[str, Verdict]:
    against = comparison.against
    assert against is not None
    reader, row = readers[against], rows[against]
    pairs = {
        name: _pair(comparison, readers[name], rows[name], reader, row)
        for name in rows
        if name != against and rows[name].metric == row.metric
    }
    verdicts = compare_pairs(pairs, against=against)
    for name in rows:
        if name != against and name not in pairs:
            sentence = f"not compared with {against}: {rows[name].metric} and {row.metric} are different things"
            verdicts[name] = Verdict(sentence)
    return {name: verdicts[name] for name in rows if name != against}


def _pair(comparison: ComparisonSpec, reader: Reader, row: Row, other: Reader, others: Row) -> Pair:
    own = [reader.final(result) for result in row.results]
    by, reason = _matching(comparison, row, other, others)
    if by is None or not row.results:
        theirs, note = [other.final(result) for result in others.results], f"cost is not matched: {reason}"
    else:
        budget = statistics.mean(reader.spent(result, by=by) for result in row.results)
        found = [
            other.best_of(r, budget=budget, cost=lambda trial: other.cost_of(trial, by=by)) for r in others.results
        ]
        theirs = [value for value, _ in found]
        note = _matched_note(other, others, found, budget=budget, by=by)
    notes = [note if row.results else "", _left_out(reader, own, others.name, theirs, bool(comparison.limit))]
    return Pair(
        [value for value in own if value is not None],
        [value for value in theirs if value is not None],
        "; ".join(part for part in notes if part),
    )


def _matching(comparison: ComparisonSpec, row: Row, other: Reader, others: Row) -> tuple[str | None, str]:
    """By what cost is matched, or why it cannot be."""
    settings = comparison.settings
    by = settings.match or ("trials" if row.black_box else "seconds")
    if not others.black_box:
        return None, f"{others.name} is no search by trials that could be cut short"
    if by == "trials" and not row.black_box:
        return None, 'a one-shot search has no trials; match = "seconds" would compare times'
    if by == "seconds" and other.looks_up and settings.seconds_per_trial is None:
        return None, f"scores of {others.name} are looked up; say what one training takes: seconds_per_trial"
    return by, ""


def _matched_note(
    other: Reader, others: Row, found: Sequence[tuple[float | None, int]], *, budget: float, by: str
) -> str:
    """How many trials were compared with, and what they give: not what the table says of whole searches."""
    values = [value for value, _ in found if value is not None]
    if not values:
        return ""
    count = round(statistics.mean(count for _, count in found))
    trials = "trial" if count == 1 else "trials"
    note = f"at matched cost, the best of {count} {trials} in each seed of {others.name}, {statistics.mean(values):.2f}"
    wanted = f"{budget:,.0f} {'trials' if by == 'trials' else 's'}"
    exhausted = budget > max(other.spent(result, by=by) for result in others.results) + ROUNDING
    return f"{note}, which is all it has: {wanted} would be the same cost" if exhausted else note


def _left_out(
    reader: Reader, own: Sequence[float | None], name: str, theirs: Sequence[float | None], limited: bool
) -> str:
    """How many results do not count, and why."""
    reason = "above the limit" if limited else "not in the table"
    counts = {reader.contender.name: own.count(None), name: theirs.count(None)}
    return ", ".join(f"{count} of {who} {reason} and left out" for who, count in counts.items() if count)
