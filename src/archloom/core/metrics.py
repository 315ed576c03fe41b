"""Metrics: what a score is called, which way is better, and how it is printed.

Searches compare scores, which lie in 0..1 and rise as a network gets better, whatever the task. A metric turns a score
into the figure that people read: 0.931 is an accuracy of 93.1 %, 0.0125 a perplexity of 80.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_SCORE = "_score"  # how names of scores end in records


@dataclass(frozen=True)
class Metric(ABC):
    """The figure that people read of a task.

    Attributes:
        name: the name, as in `valid_accuracy`.
        unit: what follows the figure; '' where it has no unit.
        higher_is_better: whether a network improves as the figure rises.
        decimals: places behind the point of a printed figure.

    Examples:
        >>> import archloom
        >>> archloom.ACCURACY.format(0.9312), archloom.PERPLEXITY.format(0.0125)
        ('93.1 %', '80.0')
    """

    name: str
    unit: str
    higher_is_better: bool
    decimals: int = 1

    @abstractmethod
    def to_value(self, score: float) -> float:
        """Return the figure that people read."""

    @abstractmethod
    def mean(self, scores: Iterable[tuple[float, int]]) -> float:
        """Return the score of several parts, each with its number of examples, taken together."""

    def from_percent(self, score: float | None) -> float | None:
        """Return the figure of a score in percent; None for an unknown score, or where the figure is infinite."""
        value = math.inf if score is None else self.to_value(score / 100)
        return value if math.isfinite(value) else None

    def to_figure(self, score: float) -> float:
        """Return the figure as the history of a search holds it; an accuracy is a share there."""
        return self.to_value(score)

    def name_figures(self, row: Mapping[str, Any], figure: Callable[[float], float | None]) -> dict[str, Any]:
        """Return a row for people: `valid_score` becomes `valid_perplexity`, and its value the figure."""
        scores = {name for name, value in row.items() if name.endswith(_SCORE) and value is not None}
        return {
            f"{name.removesuffix(_SCORE)}_{self.name}" if name.endswith(_SCORE) else name: (
                figure(value) if name in scores else value
            )
            for name, value in row.items()
        }

    def format(self, score: float) -> str:
        """Return the figure with its unit."""
        return f"{self.to_value(score):,.{self.decimals}f}{self.unit and ' '}{self.unit}"

    @property
    def label(self) -> str:
        """Return the name with its unit, for an axis or a column."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    @property
    def direction(self) -> int:
        """Return 1 where higher figures are better, else -1: figures times this rank like scores."""
        return 1 if self.higher_is_better else -1

    @property
    def difference_unit(self) -> str:
        """Return what follows a difference of two figures: `points`, or `in perplexity`."""
        return "points" if self.unit == "%" else f"in {self.name}"

    @property
    def better(self) -> str:
        """Return `higher` or `lower`."""
        return "higher" if self.higher_is_better else "lower"


class Accuracy(Metric):
    """The share of correct examples, in percent."""

    def to_value(self, score: float) -> float:
        """Return percent."""
        return 100 * score

    def from_percent(self, score: float | None) -> float | None:
        """Return the score itself, to the bit."""
        return score

    def to_figure(self, score: float) -> float:
        """Return the share itself."""
        return score

    def mean(self, scores: Iterable[tuple[float, int]]) -> float:
        """Return the arithmetic mean, by examples."""
        parts = list(scores)
        return sum(score * count for score, count in parts) / sum(count for _, count in parts)


class Perplexity(Metric):
    """How many words a model hesitates between: its score is 1 / perplexity, the geometric mean of probabilities."""

    def to_value(self, score: float) -> float:
        """Return the perplexity; infinite for a score of 0."""
        return math.inf if score <= 0 else 1 / score

    def mean(self, scores: Iterable[tuple[float, int]]) -> float:
        """Return the geometric mean, by words: perplexities do not average otherwise."""
        parts = list(scores)
        if any(score <= 0 for score, _ in parts):
            return 0.0
        return math.exp(sum(count * math.log(score) for score, count in parts) / sum(count for _, count in parts))


ACCURACY: Metric = Accuracy("accuracy", "%", higher_is_better=True)
PERPLEXITY: Metric = Perplexity("perplexity", "", higher_is_better=False)
METRICS: Mapping[str, Metric] = {metric.name: metric for metric in (ACCURACY, PERPLEXITY)}


def additive(name: str, figure: float) -> float:
    """Return a figure of a step as something that has a mean: a perplexity, such as `valid_perplexity`, by its log."""
    return math.log(figure) if name.endswith(PERPLEXITY.name) else figure


def from_additive(name: str, mean: float) -> float:
    """Return the figure of several steps, given the mean of what `additive` returned."""
    return math.exp(mean) if name.endswith(PERPLEXITY.name) else mean
