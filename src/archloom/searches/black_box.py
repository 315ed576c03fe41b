"""The black-box loop: ask the strategy for an architecture, score it, report the score."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from archloom.benchmarks.base import Benchmark
from archloom.core.errors import SettingError
from archloom.core.events import Advanced
from archloom.core.json_object import JsonObject, to_json_object
from archloom.core.metrics import ACCURACY, Metric
from archloom.core.state import StateDict
from archloom.objectives.limits import Limit
from archloom.objectives.target import Target
from archloom.searches.budget import RACE_END, Budget
from archloom.searches.history import best_trial, trial_figures
from archloom.searches.limit_check import check_limit, fit_limit, limit_sentence
from archloom.searches.loop import SearchLoop
from archloom.searches.random_baseline import defect_sentence, describe_entry, join_sentences
from archloom.searches.records import TrialRecord
from archloom.searches.result import SearchOutcome
from archloom.searches.studies import FinishedTrial, LocalStudy, Score, Scored, Study
from archloom.searches.target_check import check_target, target_sentence
from archloom.searches.trial_jobs import ParallelScore
from archloom.spaces import Architecture, SearchSpace
from archloom.strategies.base import BlackBox, Trial


class TableScore:
    """Looks up validation accuracy in percent; the test column is only for the verdict."""

    def __init__(self, table: Benchmark, dataset: str, *, epochs: int | None = None) -> None:
        if epochs is not None and epochs not in table.epochs:
            known = " or ".join(map(str, table.epochs)) or "left out"
            raise SettingError(
                f"search.score_epochs must be {known} for the {table.name} table, got {epochs}; "
                "or set search.score = 'training'"
            )
        if "valid" not in table.metrics:
            raise SettingError(
                f"the {table.name} table has test scores only, and a search must not see them; "
                "add validation scores, or set search.score = 'training'"
            )
        self._table, self._dataset, self._column = table, dataset, epochs
        self.epochs = epochs or next(iter(table.epochs), 1)  # a table without epochs: one training, however long

    def __call__(self, architecture: Architecture) -> Iterator[Scored]:
        score = self._table.query(architecture, self._dataset, metric="valid", epochs=self._column)
        yield Scored(self.epochs, score)


class PathScore:
    """Evaluates a path, in percent, under weights that are trained already."""

    epochs = 0  # nothing is trained

    def __init__(self, paths: Callable[[Architecture], float]) -> None:
        self._paths = paths

    def __call__(self, architecture: Architecture) -> Iterator[Scored]:
        yield Scored(self.epochs, self._paths(architecture))


def describe_score(metric: Metric, architectures: int, score: float) -> str:
    """Return `score of 12 different architectures: 93.12`; a score in percent is an accuracy, or 100 / perplexity."""
    if metric.higher_is_better:
        return f"score of {architectures} different architectures: {score:.2f}"
    return f"{metric.name} of {architectures} different architectures: {metric.format(score / 100)}"


class BlackBoxLoop(SearchLoop[TrialRecord]):
    """Search by scores alone; the result is the best-scored architecture, with a target the best that meets it.

    A strategy gets the reward of an architecture: its score, minus penalties for missing the target and for exceeding
    the limit. A trial that exceeds the limit is never the result.
    """

    unit = "trial"
    seconds_between_saves = 5.0  # a state holds all trials so far: saved after each, thousands would cost their square
    saves_at_end = False  # the result follows at once

    def __init__(
        self,
        space: SearchSpace,
        strategy: BlackBox,
        score: Score,
        *,
        trials: int,
        study: Study | None = None,
        parallel: ParallelScore | None = None,  # scores groups of trials; left out: one trial after another
        target: Target | None = None,
        limit: Limit | None = None,
        metric: Metric = ACCURACY,
        budget: Budget | None = None,
        **common: Any,
    ) -> None:
        super().__init__(space, **common)
        self._metric, self._budget = metric, budget
        self._target, self._limit = target, limit
        self._targets = [one for one in (target, None if limit is None else limit.to_target()) if one is not None]
        if self._targets:
            strategy.set_target(self._targets[0])
        self.strategy, self.score, self._trials = strategy, score, trials
        self._study, self._parallel = study or LocalStudy(), parallel
        self._waiting: list[FinishedTrial] = []  # scored, and not yet reported
        self._known: dict[int, FinishedTrial] = {}  # of a group that was interrupted, by number

    @property
    def total(self) -> int:
        """Return the number of trials, or of those that the budget leaves time for."""
        return self._trials

    def read_record(self, value: JsonObject) -> TrialRecord:
        """Return the record of a trial that a line holds."""
        return TrialRecord.from_json(value)

    def advance(self) -> TrialRecord | None:
        """Return the record of the next trial, own or of another process; None while others score the last ones."""
        finished = self._run_group() if self._parallel else self._replay_foreign_trial() or self._run_trial()
        if finished is None:
            return None
        report = self.strategy.report_pruned if finished.pruned else self.strategy.tell
        report(finished.trial, self._reward(finished.scores[-1].score, finished.trial.architecture))
        self.position += 1
        record = self._record(finished)
        self.emit(Advanced(self.position, 0, trial_figures(record)))
        self._keep_to_budget(finished.seconds)
        return record

    def _keep_to_budget(self, seconds: float) -> None:
        """End the search after this trial if another one, which may take as long, would end too late."""
        if self._budget is not None and not self._waiting and self._budget.left_until(RACE_END) < seconds:
            self._trials = self.position

    def _run_group(self) -> FinishedTrial | None:
        """Return the next trial of a group; None after a request to stop, with what was scored kept."""
        assert self._parallel is not None
        if not self._waiting:
            before = copy.deepcopy(self.strategy.state_dict())
            count = min(self._parallel.at_once, self.total - self.position)
            trials = [self.strategy.ask(self.position + place) for place in range(count)]
            unknown = [trial for trial in trials if trial.number not in self._known]
            self._known |= {one.trial.number: one for one in self._parallel.run(unknown, self._stop)}
            if len(self._known) < count:
                self.strategy.load_state_dict(before)  # the same trials are asked for again
                return None
            self._waiting, self._known = [self._known[trial.number] for trial in trials], {}
        return self._waiting.pop(0)

    def _replay_foreign_trial(self) -> FinishedTrial | None:
        """Return a trial of another process; the strategy gets its scores as if it had asked for the trial."""
        finished = self._study.find_foreign_trial({record.trial for record in self.history})
        if finished is not None:
            for scored in filter(self._is_intermediate, finished.scores):
                self._should_continue(finished.trial, scored)
        return finished

    def _run_trial(self) -> FinishedTrial | None:
        """Score the next trial; return None if there is none now, or if the result came too late to count."""
        start = self._clock()
        trial = self._study.begin(self.strategy, self.position)
        if trial is None:
            return None
        with self._study.keep_alive(trial):
            scores, pruned = self._score_trial(trial)
        finished = FinishedTrial(trial, scores, pruned, self._clock() - start)
        return finished if self._study.finish(finished) else None

    def _score_trial(self, trial: Trial) -> tuple[tuple[Scored, ...], bool]:
        """Return the scores of a trial until it is complete, or until the strategy prunes it."""
        scores: list[Scored] = []
        for scored in self.score(trial.architecture):
            scores.append(scored)
            if self._is_intermediate(scored) and not self._should_continue(trial, scored):
                return tuple(scores), True
        return tuple(scores), False

    def _should_continue(self, trial: Trial, scored: Scored) -> bool:
        return self.strategy.should_continue(trial, scored.epochs, self._reward(scored.score, trial.architecture))

    def _reward(self, score: float, architecture: Architecture) -> float:
        """Return the reward in percent, like the score."""
        if not self._targets:
            return score
        reward = score / 100
        for target in self._targets:
            reward = target.compute_reward(reward, architecture)
        return 100 * reward

    def _is_intermediate(self, scored: Scored) -> bool:
        return scored.epochs < self.score.epochs

    # --- records

    def _record(self, finished: FinishedTrial) -> TrialRecord:
        last, full, architecture = finished.scores[-1], self.score.epochs, finished.trial.architecture
        before = self.history[-1].trainings if self.history else 0.0
        trained = round(before * full) + last.epochs  # in epochs, which add up exactly
        record = TrialRecord(
            trial=finished.trial.number,
            score=last.score,
            best=last.score,
            epochs=last.epochs,
            pruned=finished.pruned,
            trainings=trained / full if full else 0.0,
            seconds=finished.seconds,
            metric=self._metric.name,
            **self.describe(architecture),
        )
        if self._targets:
            cost = self._targets[0].cost(architecture)
            met = all(target.is_met_by(architecture) for target in self._targets)
            record = replace(record, reward=self._reward(last.score, architecture), cost=cost, met=met)
        return replace(record, best=self._best_score(record))

    def _best_score(self, record: TrialRecord) -> float:
        """Return the best score so far; with a target, of the trials that meet it."""
        if not self._targets:
            before = self.history[-1].best if self.history else record.score
            return before if record.pruned else max(record.score, before)
        rivals = [other for other in self.history if not other.pruned]
        return best_trial(rivals if record.pruned and rivals else [*rivals, replace(record, pruned=False)]).score

    def conclude(self) -> SearchOutcome:
        """Return the best architecture and what is known of it."""
        winner = best_trial([record for record in self.history if self._keeps_limit(record)] or self.history)
        architecture = self._fit_limit(winner)
        different = len({record.text for record in self.history})
        best = f"Best {describe_score(self._metric, different, winner.score)}."
        if not self._keeps_limit(winner):
            best += " No trial kept to the limit: this one was changed until it does, and was not scored again."
        checked, limit, findings = None, check_limit(self._limit, architecture), self.strategy.findings()
        if self._target is not None:
            checked = check_target(self._target, architecture, self._sample_costs)
        described = self.describe(architecture)
        sentences = (
            best,
            defect_sentence(self.space, architecture),
            describe_entry(described["table_entry"]),
            target_sentence(checked),
            limit_sentence(limit),
        )
        return SearchOutcome(
            **described,
            verdict=join_sentences(sentences),
            target=checked,
            limit=limit,
            posterior=findings.posterior,
            findings=findings.others,
        )

    def _keeps_limit(self, record: TrialRecord) -> bool:
        return self._limit is None or self._limit.allows(self.space.prune(record.architecture))

    def _fit_limit(self, winner: TrialRecord) -> Architecture:
        """Return the architecture of a trial without dead edges, and with as few changes as the limit demands."""
        own = winner.architecture

        def closeness(one: Architecture) -> float:
            return -float(sum(one[name] != own[name] for name in own))

        return fit_limit(self._limit, self.space, own, closeness)

    def _sample_costs(self) -> list[tuple[float, float]]:
        """Return quality and cost of all trials."""
        tried = [record for record in self.history if not record.pruned]
        return [(record.score / 100, record.cost) for record in tried if record.cost is not None]

    def state_dict(self) -> StateDict:
        """Return everything that a checkpoint must hold."""
        state = {**super().state_dict(), "strategy": self.strategy.state_dict()}
        if self._budget is not None:
            state["spent"] = self._budget.elapsed
        if self._parallel is not None:
            state["waiting"] = [to_json_object(one) for one in self._waiting]
            state["known"] = [to_json_object(one) for one in self._known.values()]
        return state

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state)
        self.strategy.load_state_dict(state["strategy"])
        self._waiting = [self._read_trial(value) for value in state.get("waiting", [])]
        self._known = {one.trial.number: one for one in map(self._read_trial, state.get("known", []))}
        if self._budget is not None:
            self._budget.spent = state.get("spent", 0.0)
            self._keep_to_budget(self.history[-1].seconds if self.history else 0.0)

    def _read_trial(self, value: JsonObject) -> FinishedTrial:
        trial = Trial(value["trial"]["number"], self.space.check(value["trial"]["architecture"]))
        scores = tuple(Scored(one["epochs"], one["score"]) for one in value["scores"])
        return FinishedTrial(trial, scores, value["pruned"], value["seconds"])
