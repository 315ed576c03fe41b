"""Metrics: what a score is called, which way is better, and how it is printed.

Searches compare scores, which lie in 0..1 and rise as a network gets better, whatever the task. A metric turns a score
into the figure that people read: 0.931 is an accuracy of 93.1 %, 0.0125 a perplexity of 80.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass


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

    def to_figure(self, score: float) -> float:
        """Return the figure as the history of a search holds it; an accuracy is a share there."""
        return self.to_value(score)

    def format(self, score: float) -> str:
        """Return the figure with its unit."""
        return f"{self.to_value(score):,.{self.decimals}f}{self.unit and ' '}{self.unit}"

    @property
    def label(self) -> str:
        """Return the name with its unit, for an axis or a column."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    @property
    def better(self) -> str:
        """Return `higher` or `lower`."""
        return "higher" if self.higher_is_better else "lower"


class Accuracy(Metric):
    """The share of correct examples, in percent."""

    def to_value(self, score: float) -> float:
        """Return percent."""
        return 100 * score

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
METRICS = {metric.name: metric for metric in (ACCURACY, PERPLEXITY)}
