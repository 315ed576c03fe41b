"""How sure a finalist race is of its winner: the probability that no other contestant has a better score.

The score is that of the race, the loss less the bonus for size, without the noise of a short training. Trainings of
later rounds took more steps and have another level. Their level is set by what the first round predicts of the same
architectures, and not by their scores in it: those that were good there were also lucky. After that, each training is
one more observation of its architecture.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from archloom.core.json_object import JsonObject, from_json_object
from archloom.searches.race_proposals import Knowledge
from archloom.searches.race_surrogate import Observation, Surrogate
from archloom.searches.records import FinalistRecord
from archloom.spaces import Architecture

FEWEST = 8  # architectures that were trained; fewer do not show how noisy a short training is


@dataclass(frozen=True, kw_only=True)
class Certainty:
    """The probability that the result of a race has the best score of its contestants."""

    probability: float  # by the surrogate's posterior
    contestants: int
    trainings: int

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the certainty that a JSON object holds."""
        return from_json_object(cls, value)

    @property
    def sentence(self) -> str:
        """Return of what it is the probability, in words."""
        return (
            f"The probability that the result has the best score of these {self.contestants} is "
            f"{_round(self.probability)} (by the surrogate; the score is loss and size after short trainings, without "
            "their noise)."
        )


def measure_certainty(
    knowledge: Knowledge, records: Sequence[FinalistRecord], winner: Architecture, *, size: float
) -> Certainty | None:
    """Return how sure the trainings of a race are of its winner; None where too few were trained."""
    architectures = list(dict.fromkeys(record.architecture for record in records))
    if len(architectures) < FEWEST:
        return None
    surrogate = Surrogate(knowledge.space, _join_rounds(knowledge, records, size=size))
    prediction = surrogate.predict(architectures, [knowledge.covariates(one) for one in architectures])
    probability = float(prediction.probabilities_of_best()[architectures.index(winner)])
    return Certainty(probability=probability, contestants=len(architectures), trainings=len(records))


def _join_rounds(knowledge: Knowledge, records: Sequence[FinalistRecord], *, size: float) -> list[Observation]:
    """Return the observations of all rounds, at the level of the first one."""
    by_steps: dict[int, list[FinalistRecord]] = {}
    for record in sorted(records, key=lambda one: one.steps):
        by_steps.setdefault(record.steps, []).append(record)
    first, *later = (knowledge.observe(some, size=size) for some in by_steps.values())
    if not later:
        return first
    surrogate, joined = Surrogate(knowledge.space, first), list(first)
    for some in later:
        predicted = surrogate.predict([one.architecture for one in some], [one.covariates for one in some]).mean
        shift = float(predicted.mean()) - statistics.fmean(one.score for one in some)
        joined += [replace(one, score=one.score + shift) for one in some]
    return joined


def _round(probability: float) -> str:
    """Return `62 %`; `below 1 %` and `above 99 %` for what is neither impossible nor certain."""
    percent = round(100 * probability)
    return "below 1 %" if percent < 1 else "above 99 %" if percent > 99 else f"{percent} %"
