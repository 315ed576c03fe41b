"""Records of a retraining: what is known after an epoch, and after the last one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from archloom.core.json_object import JsonObject, from_json_object, to_json_object
from archloom.retrainings.evaluation import Evaluation


@dataclass(frozen=True, kw_only=True)
class RetrainRecord:
    """One epoch of a retraining; accuracies are in percent. What is None was not measured."""

    epoch: int
    seconds: float  # of training
    learning_rate: float  # of the last step
    train_loss: float
    train_accuracy: float
    images_per_second: float
    valid_accuracy: float | None = None
    valid_top5: float | None = None
    valid_loss: float | None = None
    ema_valid_accuracy: float | None = None  # of the running mean of the weights
    valid_seconds: float | None = None

    @property
    def best_accuracy(self) -> float | None:
        """Return the accuracy by which the best epoch is chosen: that of the running mean, where there is one."""
        return self.valid_accuracy if self.ema_valid_accuracy is None else self.ema_valid_accuracy

    @property
    def total_seconds(self) -> float:
        """Return the time of training and validation."""
        return self.seconds + (self.valid_seconds or 0.0)

    @property
    def status(self) -> str:
        """Return a few figures for a progress line."""
        return "" if self.best_accuracy is None else f"valid {self.best_accuracy:.2f} %"

    @property
    def warning(self) -> str:
        """Return '': a retraining has no monitor."""
        return ""

    def to_json(self) -> JsonObject:
        """Return the record as a line of metrics.jsonl."""
        return {name: value for name, value in to_json_object(self).items() if value is not None}

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the record that a line of metrics.jsonl holds; both editions write the same names."""
        return from_json_object(cls, value, partial=True)


LEAST_EPOCHS, LEAST_STEPS = 10, 500  # with less of either a model is called hardly trained


@dataclass(frozen=True, kw_only=True)
class RetrainOutcome:
    """What a training leads to: how good its best model is."""

    test: Evaluation | None  # on the test images, where there are any
    valid: Evaluation | None  # on the validation images, where there are any
    best_epoch: int  # of the model that is kept, from 0
    steps: int = 0  # that were taken; 0: not known, as in files of older versions
    planned_steps: int = 0
    steps_per_epoch: int = 0

    @property
    def training_caution(self) -> str:
        """Return a warning if the model was trained less than it should be, else ''."""
        if not self.steps or not self.steps_per_epoch:
            return ""
        sentences, epochs = [], self.steps / self.steps_per_epoch
        if epochs < LEAST_EPOCHS or self.steps < LEAST_STEPS:
            sentences.append(
                f"Hardly trained: {epochs:.3g} epochs of {self.steps_per_epoch:,} steps. A model needs at least "
                f"{LEAST_EPOCHS} epochs and {LEAST_STEPS} steps; use a larger budget or more epochs."
            )
        if self.steps < self.planned_steps:
            planned = self.planned_steps / self.steps_per_epoch
            sentences.append(f"The time ended after {epochs:.3g} of {planned:.3g} planned epochs.")
        return " ".join(sentences)
