"""Compare the result with a random baseline: by the benchmark table, and by the shared weights."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from archloom.benchmarks.base import TableEntry
from archloom.core.counts import count_text
from archloom.core.metrics import ACCURACY, Metric
from archloom.families.defects import find_defect
from archloom.spaces import Architecture, SearchSpace

LEAST_STEPS = 200  # of a search; contract tests show that strategies decide in so many


@dataclass(frozen=True)
class BaselineComparison:
    """Scores under the shared weights: of the result, and of architectures sampled uniformly, in rising order."""

    shared_score: float
    random_baseline: tuple[float, ...]
    metric: Metric = ACCURACY

    @property
    def sentence(self) -> str:
        """Return how many random architectures the result beats, in words."""
        if not self.random_baseline:
            return ""
        beaten = sum(value < self.shared_score for value in self.random_baseline)
        metric, median = self.metric, statistics.median(self.random_baseline)
        return (
            f"Under the shared weights its validation {metric.name} is {metric.format(self.shared_score)}, "
            f"{metric.better} than {beaten} of {len(self.random_baseline)} architectures sampled uniformly (median "
            f"{metric.format(median)}). Shared weights rank architectures only roughly; retraining decides."
        )


def compare_with_random(
    space: SearchSpace,
    architecture: Architecture,
    evaluate: Callable[[Architecture], float],
    *,
    samples: int,
    rng: random.Random,
    metric: Metric = ACCURACY,
    is_late: Callable[[], bool] = lambda: False,
) -> BaselineComparison:
    """Return how an architecture does against a random baseline under the shared weights; fewer where it is late."""
    own = evaluate(architecture)
    sampled: list[float] = []
    while len(sampled) < samples and not is_late():
        sampled.append(evaluate(space.sample(rng)))
    return BaselineComparison(own, tuple(sorted(sampled)), metric)


def describe_entry(entry: TableEntry | None) -> str:
    """Return what a table says of an architecture. It holds the whole space, so the share beaten is exact."""
    if entry is None:
        return ""
    instead = f" (instead of {entry.instead_of})" if entry.instead_of else ""
    beaten = 100 * (entry.count - entry.rank) / entry.count
    return (
        f"In the {entry.dataset} table{instead} it has {entry.test:.2f} % test accuracy, rank {entry.rank:,} of "
        f"{entry.count:,}, {entry.regret:.2f} points below the best. It beats {beaten:.1f} % of all architectures in "
        "the table."
    )


def defect_sentence(space: SearchSpace, architecture: Architecture) -> str:
    """Return a warning if nothing in the architecture learns, or nothing is connected."""
    defect = find_defect(space, architecture)
    return "" if defect is None else f"Warning: {defect}."


def training_sentence(steps: int) -> str:
    """Return a warning if shared weights were trained for so few steps that they say nothing, else ''."""
    if steps >= LEAST_STEPS:
        return ""
    trained = count_text(steps, "step")
    return f"The shared weights were hardly trained: {trained}, and a search needs at least {LEAST_STEPS}."


def join_sentences(sentences: Sequence[str]) -> str:
    """Return a verdict from the sentences that are not empty."""
    return " ".join(sentence for sentence in sentences if sentence)
