"""Tasks: what a prediction is for. A family of networks names its task, and data sets are made for one.

Loss, score, metric and the shape of a network come from here, and so does every sentence about guessing. Searches,
retrainings and reports ask the task, and do not know what an example is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from torch import Tensor
from torch.nn import functional as F

from archloom.core.errors import DataError
from archloom.core.metrics import Metric


class ImageShape(NamedTuple):
    """What a network of images must have: its positional arguments.

    Examples:
        >>> import archloom
        >>> archloom.ImageShape(classes=10, colours=3).colours
        3
    """

    classes: int
    colours: int


class TextShape(NamedTuple):
    """What a network of text must have: its positional argument.

    Examples:
        >>> import archloom
        >>> archloom.TextShape(words=10_000).words
        10000
    """

    words: int


NetworkShape = ImageShape | TextShape


class Task(ABC):
    """What a prediction is for. A task has no state: one object serves all networks and data.

    Every task here predicts one of several classes for each example: a class of an image, the next word of a text.

    Examples:
        >>> import archloom
        >>> archloom.family_of(archloom.Nb201()).task.metric.name
        'accuracy'
    """

    name: ClassVar[str]
    metric: ClassVar[Metric]
    examples: ClassVar[str]  # what a batch consists of
    outputs: ClassVar[str]  # what a network chooses between
    data_type: ClassVar[type]
    are_independent: ClassVar[bool] = True  # whether a batch can be split into its examples
    default_data: ClassVar[str]  # needs no download
    any_shape: ClassVar[NetworkShape]  # to build a network that only has to be checked

    @abstractmethod
    def shape_of(self, data: Any) -> NetworkShape:
        """Return what a network for these data must have."""

    def loss(self, logits: Tensor, labels: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
        """Return the mean loss of a batch, with a gradient."""
        return F.cross_entropy(logits, labels, label_smoothing=label_smoothing)

    @abstractmethod
    def score(self, logits: Tensor, labels: Tensor, *, loss: Tensor | None = None) -> Tensor:
        """Return the score of a batch, in 0..1, higher is better; `loss` is its plain loss if that is known."""

    @abstractmethod
    def sum_scores(self, logits: Tensor, labels: Tensor) -> float:
        """Return a sum over the examples of a batch; sums of several batches add up."""

    @abstractmethod
    def score_of_sum(self, total: float, examples: int) -> float:
        """Return the score of so many examples whose sums add up to `total`."""

    @abstractmethod
    def score_examples(self, logits: Tensor, labels: Tensor, *, columns: int) -> Tensor:
        """Return a figure for each example, higher is better; comparisons take their differences."""

    @abstractmethod
    def chance_sentence(self, score: float, counts: Sequence[int]) -> str:
        """Return a warning if a score is no better than guessing by frequencies, else ''.

        `counts` says how many examples each class has.
        """

    @abstractmethod
    def describe_difference(self, points: float, low: float, high: float, other: str) -> str:
        """Return how much better an architecture is than another, by 100 times the mean difference of examples."""

    def check(self, data: Any) -> None:
        """Raise a DataError if data are for another task."""
        if not isinstance(data, self.data_type):
            kind, wanted = type(data).__name__, self.data_type.__name__
            raise DataError(
                f"this space is for {self.name} and needs {self.examples} ({wanted}), got {kind}; "
                f"use another data set, such as '{self.default_data}'"
            )
