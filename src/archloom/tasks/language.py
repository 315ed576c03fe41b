"""Language modelling: predict the next word of a text; the score is 1 / perplexity.

The score is the geometric mean of the probabilities that a model gave to the words that came. It lies in 0..1 and rises
as a model gets better, like an accuracy; people read its inverse, which falls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from archloom.core.metrics import PERPLEXITY, Metric
from archloom.data.text import TextData
from archloom.tasks.base import NetworkShape, Task, TextShape


class LanguageModelling(Task):
    """Predict the next word of a text."""

    name: ClassVar[str] = "language modelling"
    metric: ClassVar[Metric] = PERPLEXITY
    examples: ClassVar[str] = "words"
    outputs: ClassVar[str] = "words"
    data_type: ClassVar[type] = TextData
    are_independent: ClassVar[bool] = False  # a word follows those before it
    default_data: ClassVar[str] = "pydoc"
    any_shape: ClassVar[NetworkShape] = TextShape(words=2)

    def shape_of(self, data: Any) -> TextShape:
        """Return the number of words."""
        return TextShape(len(data.words))

    def score(self, logits: Tensor, labels: Tensor, *, loss: Tensor | None = None) -> Tensor:
        """Return 1 / perplexity; the plain loss is its logarithm."""
        with torch.no_grad():
            return (-(F.cross_entropy(logits, labels) if loss is None else loss)).exp()

    def sum_scores(self, logits: Tensor, labels: Tensor) -> float:
        """Return the sum of the log-probabilities of the words that came."""
        return -float(F.cross_entropy(logits, labels, reduction="sum"))

    def score_of_sum(self, total: float, examples: int) -> float:
        """Return 1 / perplexity."""
        return math.exp(total / examples)

    def score_examples(self, logits: Tensor, labels: Tensor, *, columns: int) -> Tensor:
        """Return the mean log-probability of each column of a segment."""
        return -F.cross_entropy(logits, labels, reduction="none").view(-1, columns).mean(dim=0)

    def chance_sentence(self, score: float, counts: Sequence[int]) -> str:
        """Return a warning if a perplexity is not below that of guessing words by how often they occur."""
        return compare_with_guessing(self.metric.to_value(score), unigram_perplexity(counts))

    def describe_difference(self, points: float, low: float, high: float, other: str) -> str:
        """Return `perplexity 3.2 % below that of the GDAS cell (95 % -5.0 to -1.1)`."""
        change, least, most = (100 * math.expm1(-value / 100) for value in (points, high, low))
        where = "below" if change <= 0 else "above"
        return f"perplexity {abs(change):.1f} % {where} that of {other} (95 % {least:+.1f} to {most:+.1f})"


def compare_with_guessing(perplexity: float, guessing: float) -> str:
    """Return a warning unless a perplexity is below that of guessing words by how often they occur."""
    if perplexity < guessing:
        return ""
    return (
        f"The network has learned nothing: its perplexity, {perplexity:,.1f}, is not below {guessing:,.1f}, that of "
        "guessing words by how often they occur."
    )


def unigram_perplexity(counts: Sequence[int]) -> float:
    """Return the perplexity of words by their own frequencies; infinite for no words."""
    total = sum(counts)
    if not total:
        return math.inf
    return math.exp(-sum(count / total * math.log(count / total) for count in counts if count))
