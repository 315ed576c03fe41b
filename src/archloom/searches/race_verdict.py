"""What the finalist race shows: how the winner compares with references and random architectures, and how surely."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from archloom.core.json_object import JsonObject, from_json_object
from archloom.core.score_names import rename_scores
from archloom.searches.finalist_race import NOT_REFERENCES, RaceOutcome, is_reference, unpack_bits
from archloom.searches.race_certainty import Certainty
from archloom.searches.race_proposals import LARGEST, RANDOM
from archloom.searches.records import FinalistRecord
from archloom.spaces import Architecture
from archloom.tasks import CLASSIFICATION, LANGUAGE, TASKS

CONFIDENCE = 0.95
FEW_HELD_OUT = 500  # images, or words; fewer have an error of two points and more for a difference
MOST_CHANGES = 6  # decisions that are named


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The score of the winner minus that of another contestant, in points, by equal short trainings.

    Points are those of an accuracy, or hundredths of the logarithm of a perplexity: about its percent.
    """

    other: str  # why the other took part: the name of a reference
    points: float
    low: float  # of the 95 % interval; over held-out images and, with several seeds, over seeds
    high: float
    steps: int
    seeds: int
    images: int
    task: str = CLASSIFICATION.name

    @property
    def text(self) -> str:
        """Return `1.8 points above the ResNet block after 480 steps (95 % +0.4 to +3.2)`."""
        name = "the largest architecture" if self.other == LARGEST else f"the {self.other}"
        other = f"{name} after {self.steps:,} steps"
        return TASKS[self.task].describe_difference(self.points, self.low, self.high, other)

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the difference that a JSON object holds."""
        return from_json_object(cls, value)


@dataclass(frozen=True, kw_only=True)
class RaceResult:
    """What the race decided, and what it shows of the winner."""

    derived: str | None  # the text form of what the search alone derived; None where there was no search
    winner_origin: str  # why the winner took part
    trained: int  # short trainings in all
    contestants: int
    beaten_random: int  # random contestants that the winner beats after equally many steps
    random: int
    best_by_score: str  # what would have won by its score alone, without the bonus for size
    references: Sequence[Difference]
    cut_short: bool = False
    winner: str = ""  # its text form
    changes: Sequence[str] = ()  # decisions in which the winner differs from what the search alone derived
    certainty: Certainty | None = None  # that the winner is the best of the contestants; None of few trainings

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the result that a JSON object holds."""
        return from_json_object(cls, rename_scores(value))

    @property
    def sentence(self) -> str:
        """Return the first sentence of a verdict."""
        parts = [difference.text for difference in self.references]
        if self.winner_origin not in ("derived", "sample", "proposal", RANDOM):
            few = any(difference.images < FEW_HELD_OUT for difference in self.references)
            what = "is shown to beat this reference by so few held-out images" if few else "beat this reference"
            by_size = " by loss and size" if any(difference.points < 0 for difference in self.references) else ""
            parts.insert(0, f"no other contestant {what} ({self.winner_origin}){by_size}")
        if self.random:
            parts.append(f"better than {self.beaten_random} of {self.random} random architectures")
        return f"By equal short trainings: {', '.join(parts)}." if parts else ""

    @property
    def trained_text(self) -> str:
        """Return how many networks were trained, what the search alone derived, and what the race changed, in words."""
        cut = "; the time was over before its last round" if self.cut_short else ""
        count = f"{self.contestants} architecture{'' if self.contestants == 1 else 's'}"
        trained = f"The finalist race trained {count} ({self.trained} short trainings){cut}."
        sentences = [trained] if self.certainty is None else [trained, self.certainty.sentence]
        if self.derived is not None:
            sentences.append(f"The search alone derived {self.derived}.")
        if self.changes:
            more = len(self.changes) - MOST_CHANGES
            shown = [*self.changes[:MOST_CHANGES], *([f"{more} more"] if more > 0 else [])]
            sentences.append(f"The race changed {', '.join(shown)}.")
        if self.winner and self.best_by_score not in ("", self.winner):
            sentences.append(f"By the score alone, {self.best_by_score} would have won.")
        return " ".join(sentences)


def list_changes(derived: Architecture, winner: Architecture) -> tuple[str, ...]:
    """Return `0->1 from skip_connect to nor_conv_3x3` for every decision that differs."""
    return tuple(
        f"{name} from {option} to {winner.get(name)}" for name, option in derived.items() if winner.get(name) != option
    )


def yield_to_reference(outcome: RaceOutcome) -> RaceOutcome:
    """Return the outcome with a reference as its winner if equal trainings show that it is better.

    The race counts the size of a network, as short trainings favour small ones. That must not return a network which
    the trainings themselves clearly rank below what the user would have taken anyway.

    Few held-out images cannot tell the best of many contestants from a lucky one. There a reference of the space wins
    unless the race shows that another contestant is better.
    """
    own = [record for record in outcome.records if record.architecture == outcome.winner]
    usual = [pair for pair in _pair_references(outcome, own) if pair[0].other != LARGEST]
    if usual and own[0].origin in (*NOT_REFERENCES, LARGEST):
        difference, reference = max(usual, key=lambda pair: -pair[0].points)  # the best of them
        if difference.images < FEW_HELD_OUT and difference.low <= 0:
            return replace(outcome, winner=reference)
    if is_reference(own[0]) and own[0].origin != LARGEST:  # the size of the largest is what counted most for it
        return outcome
    better = [(one.points, theirs) for one, theirs in _pair_references(outcome, own) if one.high < 0]
    return replace(outcome, winner=min(better, key=lambda pair: pair[0])[1]) if better else outcome


def summarize_race(
    outcome: RaceOutcome, *, derived: str | None, changes: Sequence[str] = (), certainty: Certainty | None = None
) -> RaceResult:
    """Return what a race shows of its winner."""
    records = outcome.records
    own = [record for record in records if record.architecture == outcome.winner]
    rivals = [record for record in records if record.origin == RANDOM and record.architecture != outcome.winner]
    first = min(record.steps for record in records)
    start = next(record for record in own if record.steps == first)
    rivals = [record for record in rivals if record.steps == first]
    return RaceResult(
        derived=derived,
        winner_origin=own[0].origin,
        trained=len(records),
        contestants=len({record.architecture for record in records}),
        beaten_random=sum(record.valid_score < start.valid_score for record in rivals),
        random=len(rivals),
        best_by_score=_best_by_score(records).text,
        references=tuple(difference for difference, _ in _pair_references(outcome, own)),
        cut_short=outcome.cut_short,
        winner=own[0].text,
        changes=tuple(changes),
        certainty=certainty,
    )


def _best_by_score(records: Sequence[FinalistRecord]) -> FinalistRecord:
    longest = max(record.steps for record in records)
    return max((record for record in records if record.steps == longest), key=lambda record: record.valid_score)


def _pair_references(outcome: RaceOutcome, own: Sequence[FinalistRecord]) -> list[tuple[Difference, Architecture]]:
    """Return the difference to each reference, after the longest training that both had."""
    others: dict[Architecture, list[FinalistRecord]] = {}
    for record in outcome.records:
        if is_reference(record) and record.architecture != outcome.winner:
            others.setdefault(record.architecture, []).append(record)
    return [(compare_trainings(own, theirs), one) for one, theirs in others.items()]


def compare_trainings(own: Sequence[FinalistRecord], other: Sequence[FinalistRecord]) -> Difference:
    """Return the difference of two architectures after the longest training that both had, with its interval.

    Two sources of chance count: which images were held out, which both share, and the seeds of the trainings.
    """
    steps = max({record.steps for record in own} & {record.steps for record in other})
    left = [record for record in own if record.steps == steps]
    right = [record for record in other if record.steps == steps]
    points = 100 * (_mean_score(left) - _mean_score(right))
    images, of_images = _image_error(left, right)
    of_seeds, freedom = _seed_error(left, right)
    error = math.hypot(of_images, of_seeds)
    margin = _quantile(_freedom(of_images, max(1, images - 1), of_seeds, freedom)) * error
    return Difference(
        other=other[0].origin,
        points=points,
        low=points - margin,
        high=points + margin,
        steps=steps,
        seeds=min(len(left), len(right)),
        images=images,
        task=LANGUAGE.name if own[0].examples else CLASSIFICATION.name,
    )


def _score(record: FinalistRecord) -> float:
    """Return what differences are taken of: an accuracy, or minus the mean loss of words."""
    if not record.examples:
        return record.valid_score
    return statistics.fmean(record.examples)


def _mean_score(records: Sequence[FinalistRecord]) -> float:
    return statistics.fmean(map(_score, records))


def _image_error(left: Sequence[FinalistRecord], right: Sequence[FinalistRecord]) -> tuple[int, float]:
    """Return the number of images, and the standard error of the paired difference over them, in points."""
    own, other = _shares_correct(left), _shares_correct(right)
    differences = [100 * (one - two) for one, two in zip(own, other, strict=True)]
    if len(differences) < 2:
        return len(differences), 0.0
    return len(differences), statistics.stdev(differences) / math.sqrt(len(differences))


def _shares_correct(records: Sequence[FinalistRecord]) -> list[float]:
    """Return for every example the mean over seeds: of a word, or whether an image is right."""
    flags = [record.examples or unpack_bits(record.correct) for record in records]
    return [statistics.fmean(column) for column in zip(*flags, strict=True)]


def _seed_error(left: Sequence[FinalistRecord], right: Sequence[FinalistRecord]) -> tuple[float, int]:
    """Return the standard error of the difference over seeds, in points, and its degrees of freedom; 0, 0 for one."""
    groups = [[100 * _score(record) for record in records] for records in (left, right)]
    freedom = sum(len(group) - 1 for group in groups)
    if min(map(len, groups)) < 2:
        return 0.0, 0
    pooled = sum((len(group) - 1) * statistics.variance(group) for group in groups) / freedom
    return math.sqrt(pooled * sum(1 / len(group) for group in groups)), freedom


def _freedom(first: float, first_freedom: int, second: float, second_freedom: int) -> float:
    """Return the degrees of freedom of a sum of two errors (Welch and Satterthwaite)."""
    below = first**4 / first_freedom + (second**4 / second_freedom if second_freedom else 0.0)
    return (first**2 + second**2) ** 2 / below if below else float(first_freedom)


def _quantile(freedom: float) -> float:
    from scipy import stats  # late: it takes long to import, and most commands need no quantile

    return float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))
