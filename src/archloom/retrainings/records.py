"""Records of a retraining: what is known after an epoch, and after the last one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from archloom.core.json_object import JsonObject, from_json_object, to_json_object
from archloom.core.metrics import ACCURACY, METRICS, Metric
from archloom.core.score_names import rename_scores
from archloom.retrainings.evaluation import Evaluation
from archloom.retrainings.text_evaluation import TextEvaluation

AnyEvaluation = Evaluation | TextEvaluation


@dataclass(frozen=True, kw_only=True)
class RetrainRecord:
    """One epoch of a retraining; scores are in percent. What is None was not measured."""

    epoch: int
    seconds: float  # of training
    learning_rate: float  # of the last step
    train_loss: float
    train_score: float
    images_per_second: float
    valid_score: float | None = None
    valid_top5: float | None = None
    valid_loss: float | None = None
    ema_valid_score: float | None = None  # of the running mean of the weights
    valid_seconds: float | None = None
    metric: str = ACCURACY.name  # what scores are of, in percent: 100 / perplexity, where it is no accuracy
    averaged: bool | None = None  # whether a mean of the weights was validated, where a training may have one

    @property
    def measure(self) -> Metric:
        """Return how scores are named and printed."""
        return METRICS.get(self.metric, ACCURACY)

    @property
    def best_score(self) -> float | None:
        """Return the score by which the best epoch is chosen: that of the running mean, where there is one."""
        return self.valid_score if self.ema_valid_score is None else self.ema_valid_score

    @property
    def total_seconds(self) -> float:
        """Return the time of training and validation."""
        return self.seconds + (self.valid_seconds or 0.0)

    @property
    def status(self) -> str:
        """Return a few figures for a progress line."""
        if self.best_score is None:
            return ""
        if self.measure is ACCURACY:
            return f"valid {self.best_score:.2f} %"
        mean = " of the mean of the weights" if self.averaged else ""
        return f"valid {self.metric} {self.measure.to_value(self.best_score / 100):,.2f}{mean}"

    @property
    def warning(self) -> str:
        """Return '': a retraining has no monitor."""
        return ""

    def to_json(self) -> JsonObject:
        """Return the record as a line of metrics.jsonl."""
        plain = to_json_object(self)
        if self.measure is ACCURACY:  # as every file had it before there were others
            plain = {name: value for name, value in plain.items() if name != "metric"}
        return {name: value for name, value in plain.items() if value is not None}

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the record that a line of metrics.jsonl holds, also one whose scores are called accuracies."""
        return from_json_object(cls, rename_scores(value), partial=True)

    def to_row(self) -> JsonObject:
        """Return the record as a row for people: figures by the name of their metric."""
        row = {name: value for name, value in self.to_json().items() if name != "metric"}
        return self.measure.name_figures(row, self.measure.from_percent)


LEAST_EPOCHS, LEAST_STEPS = 10, 500  # with less of either a model is called hardly trained


@dataclass(frozen=True, kw_only=True)
class RetrainOutcome:
    """What a training leads to: how good its best model is."""

    test: AnyEvaluation | None  # on the test examples, where there are any
    valid: AnyEvaluation | None  # on the validation examples, where there are any
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
