"""The black-box loop: ask for an architecture, score it, tell the strategy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from archloom.benchmarks.base import Benchmark
from archloom.engine.chance import table_verdict
from archloom.engine.events import Advanced, Record
from archloom.engine.search import Search
from archloom.spaces import Architecture, SearchSpace
from archloom.strategies.base import BlackBox

Score = Callable[[Architecture], float]
"""How good an architecture is, higher is better."""


class TableScore:
    """Validation accuracy in percent, looked up: the test column is only for judging at the end."""

    def __init__(self, table: Benchmark, dataset: str) -> None:
        self._table, self._dataset = table, dataset

    def __call__(self, architecture: Architecture) -> float:
        return self._table.query(architecture, self._dataset, metric="valid")


class BlackBoxSearch(Search):
    """Search by scores alone; the best-scored architecture is the result."""

    unit = "trial"
    seconds_between_saves = 5.0  # a state holds all trials so far: saved after each, thousands would cost their square

    def __init__(self, space: SearchSpace, strategy: BlackBox, score: Score, *, trials: int, **common: Any) -> None:
        super().__init__(space, **common)
        self.strategy, self._score, self._trials = strategy, score, trials

    @property
    def total(self) -> int:
        return self._trials

    def advance(self) -> Record:
        start = self._clock()
        trial = self.strategy.ask(self.position)
        score = self._score(trial.architecture)
        self.strategy.tell(trial, score)
        self.position += 1
        best = max(score, self.history[-1]["best"]) if self.history else score
        self.tell(Advanced(self.position, 0, {"score": score, "best": best}))
        return {
            "trial": trial.number,
            "score": score,
            "best": best,
            "seconds": self._clock() - start,
            **self.describe(trial.architecture),
        }

    def conclude(self) -> Mapping[str, Any]:
        winner = max(self.history, key=lambda record: float(record["score"]))  # the first of equals
        described = {name: winner[name] for name in ("architecture", "text", "standing")}
        others = len({record["text"] for record in self.history})
        sentence = f"The best score of {others} different architectures tried: {winner['score']:.2f}."
        return {**described, "verdict": f"{sentence} {table_verdict(winner['standing'])}".strip()}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "strategy": self.strategy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.strategy.load_state_dict(state["strategy"])
