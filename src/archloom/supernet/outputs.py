"""What networks return: logits alone, with an auxiliary head, or with the state that a text is read with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from archloom.core.metrics import ACCURACY, Metric


@dataclass(frozen=True)
class StepResult:
    """Hold the mean loss of a batch (with its graph, if there is one) and its score.

    Attributes:
        loss: the mean loss of the batch.
        score: in 0..1, higher is better; by default the share of correct images.
        metric: how the score is named and printed.

    Examples:
        >>> import archloom, torch
        >>> archloom.metrics(archloom.StepResult(loss=torch.tensor(0.5), score=torch.tensor(0.75)))
        {'train_loss': 0.5, 'train_accuracy': 0.75}
    """

    loss: Tensor
    score: Tensor
    metric: Metric = ACCURACY


class Prediction(NamedTuple):
    """Hold what a network with an auxiliary head returns in training mode."""

    logits: Tensor
    auxiliary: Tensor


class Continuation(NamedTuple):
    """Hold what a network returns that reads a text piece by piece."""

    logits: Tensor  # [T * B, words]
    state: Tensor  # that the next piece begins with
    penalty: Tensor  # what training adds to the loss; zero where it adds nothing


Output = Tensor | Prediction | Continuation


@dataclass(frozen=True)
class CarriedState:
    """The state of a network at one batch of a stream: before it, and after it."""

    place: int
    before: Tensor | None
    after: Tensor


def to_precision(value: Tensor, kind: torch.dtype) -> Tensor:
    """Return a tensor in a precision; deferred logits that have it stay deferred."""
    return value if value.dtype is kind else value.to(kind)


def logits_of(prediction: Output) -> Tensor:
    """Return the logits of whatever a network returns."""
    return prediction if isinstance(prediction, Tensor) else prediction.logits
