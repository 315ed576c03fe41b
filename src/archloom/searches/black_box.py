"""The black-box loop: ask for an architecture, score it, tell the strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from archloom.benchmarks.base import Benchmark
from archloom.core.errors import SettingError
from archloom.core.events import Advanced, Record
from archloom.objectives.target import Target
from archloom.searches.loop import SearchLoop
from archloom.searches.random_baseline import table_verdict
from archloom.searches.studies import Finished, LocalStudy, Score, Scored, Study
from archloom.searches.target_check import aimed, with_target
from archloom.spaces import Architecture, SearchSpace
from archloom.strategies.base import BlackBox, Trial


class TableScore:
    """Validation accuracy in percent, looked up: the test column is only for judging at the end."""

    def __init__(self, table: Benchmark, dataset: str, *, epochs: int | None = None) -> None:
        if epochs is not None and epochs not in table.epochs:
            known = " or ".join(map(str, table.epochs)) or "left out"
            raise SettingError(
                f"search.score_epochs must be {known} for the {table.name} table, got {epochs}; "
                "or set search.score = 'training'"
            )
        self._table, self._dataset, self._column = table, dataset, epochs
        self.epochs = epochs or next(iter(table.epochs), 1)  # a table that does not say: one training, however long

    def __call__(self, architecture: Architecture) -> Iterator[Scored]:
        score = self._table.query(architecture, self._dataset, metric="valid", epochs=self._column)
        yield Scored(self.epochs, score)


class PathScore:
    """Accuracy in percent of a path under weights that are trained already."""

    epochs = 0  # nothing is trained

    def __init__(self, paths: Callable[[Architecture], float]) -> None:
        self._paths = paths

    def __call__(self, architecture: Architecture) -> Iterator[Scored]:
        yield Scored(self.epochs, self._paths(architecture))


class BlackBoxLoop(SearchLoop):
    """Search by scores alone; the best-scored architecture is the result, with a target the best of those that meet it.

    A strategy is told what an architecture is worth: its score, less for missing the target if there is one.
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
        target: Target | None = None,
        **common: Any,
    ) -> None:
        super().__init__(space, **common)
        self._target = target
        if target is not None:
            strategy.set_target(target)
        self.strategy, self._score, self._trials = strategy, score, trials
        self._study = study or LocalStudy()

    @property
    def total(self) -> int:
        return self._trials

    def advance(self) -> Record | None:
        finished = self._heard() or self._carried_out()
        if finished is None:
            return None
        tell = self.strategy.report_pruned if finished.pruned else self.strategy.tell
        tell(finished.trial, self._worth(finished.scores[-1].score, finished.trial.architecture))
        self.position += 1
        record = self._record(finished)
        self.emit(Advanced(self.position, 0, {"score": record["score"], "best": record["best"]}))
        return record

    def _heard(self) -> Finished | None:
        """A trial of another process; the strategy hears of its scores as if it had asked for it."""
        finished = self._study.news(self.history)
        if finished is not None:
            for scored in filter(self._on_the_way, finished.scores):
                self._should_continue(finished.trial, scored)
        return finished

    def _carried_out(self) -> Finished | None:
        start = self._clock()
        trial = self._study.begin(self.strategy, self.position)
        if trial is None:
            return None
        with self._study.at_work(trial):
            scores, pruned = self._scores(trial)
        finished = Finished(trial, scores, pruned, self._clock() - start)
        return finished if self._study.finish(finished) else None

    def _scores(self, trial: Trial) -> tuple[tuple[Scored, ...], bool]:
        """The scores of a trial until it is complete, or until the strategy has seen enough of it."""
        scores: list[Scored] = []
        for scored in self._score(trial.architecture):
            scores.append(scored)
            if self._on_the_way(scored) and not self._should_continue(trial, scored):
                return tuple(scores), True
        return tuple(scores), False

    def _should_continue(self, trial: Trial, scored: Scored) -> bool:
        return self.strategy.should_continue(trial, scored.epochs, self._worth(scored.score, trial.architecture))

    def _worth(self, score: float, architecture: Architecture) -> float:
        """In percent, like the score."""
        return score if self._target is None else 100 * self._target.compute_reward(score / 100, architecture)

    def _on_the_way(self, scored: Scored) -> bool:
        return scored.epochs < self._score.epochs

    def _record(self, finished: Finished) -> Record:
        last, full = finished.scores[-1], self._score.epochs
        before = self.history[-1] if self.history else {"best": last.score, "trainings": 0.0}
        trained = round(before["trainings"] * full) + last.epochs  # in epochs, which add up exactly
        return {
            "trial": finished.trial.number,
            "score": last.score,
            "best": before["best"] if finished.pruned else max(last.score, before["best"]),
            **self._aimed_at(finished),
            "epochs": last.epochs,
            "pruned": finished.pruned,
            "trainings": trained / full if full else 0.0,  # full ones that all trials so far have cost
            "seconds": finished.seconds,
            **self.describe(finished.trial.architecture),
        }

    def _aimed_at(self, finished: Finished) -> dict[str, Any]:
        """What a record tells of the target; the best is then the best that meets it."""
        if self._target is None:
            return {}
        architecture, score = finished.trial.architecture, finished.scores[-1].score
        own = {
            "score": score,
            "worth": self._worth(score, architecture),
            "cost": self._target.cost(architecture),
            "met": self._target.is_met_by(architecture),
        }
        rivals = [record for record in self.history if not record["pruned"]]
        return {**own, "best": max(rivals if finished.pruned and rivals else [*rivals, own], key=_merit)["score"]}

    def conclude(self) -> Mapping[str, Any]:
        complete = [record for record in self.history if not record["pruned"]]  # scores of fewer epochs do not compare
        winner = max(complete or self.history, key=_merit)  # the first of equals
        described = {name: winner[name] for name in ("architecture", "text", "standing")}
        others = len({record["text"] for record in self.history})
        sentence = f"The best score of {others} different architectures tried: {winner['score']:.2f}."
        verdict = f"{sentence} {table_verdict(winner['standing'])}".strip()
        found = {**described, "verdict": verdict, **self.strategy.findings()}
        if self._target is None:
            return found
        told = aimed(self._target, self.space.check(winner["architecture"]), self._sampled)
        return {**found, "verdict": with_target(verdict, told), "target": told}

    def _sampled(self) -> list[tuple[float, float]]:
        """Quality and cost of all that was tried."""
        return [(record["score"] / 100, record["cost"]) for record in self.history if not record["pruned"]]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "strategy": self.strategy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.strategy.load_state_dict(state["strategy"])


def _merit(record: Mapping[str, Any]) -> tuple[bool, float]:
    """By which a search decides: the score or, of what misses the target, what it is worth; that comes last."""
    met = bool(record.get("met", True))
    return met, float(record["score" if met else "worth"])
