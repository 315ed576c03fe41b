"""Evaluate a language model on a text that it has not seen: its perplexity, beside that of guessing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from archloom.core.json_object import JsonObject, from_json_object, to_json_object
from archloom.core.metrics import PERPLEXITY, Metric
from archloom.data.loader import Batches
from archloom.tasks import LANGUAGE
from archloom.tasks.language import compare_with_guessing, unigram_perplexity


@dataclass(frozen=True, kw_only=True)
class TextEvaluation:
    """How good a language model is on a text.

    Attributes:
        words: How many words were predicted.
        loss: Mean negative log-likelihood of a word.
        guessing: Perplexity of the words by their own frequencies.
    """

    words: int
    loss: float
    guessing: float

    metric: ClassVar[Metric] = PERPLEXITY

    @property
    def figure(self) -> float:
        """Return the figure of the metric: the perplexity."""
        return self.perplexity

    @property
    def score(self) -> float:
        """Return 1 / perplexity."""
        return math.exp(-self.loss)

    @property
    def perplexity(self) -> float:
        """Return the perplexity."""
        return math.exp(self.loss)

    @property
    def images(self) -> int:
        """Return the number of examples, as every evaluation has it."""
        return self.words

    @property
    def top1(self) -> float:
        """Return the score in percent, as every evaluation has it; higher is better."""
        return 100 * self.score

    @property
    def caution(self) -> str:
        """Return a warning if the model is no better than guessing, else ''."""
        return compare_with_guessing(self.perplexity, self.guessing)

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the evaluation that a file holds."""
        return from_json_object(cls, value)

    def to_json(self) -> JsonObject:
        """Return the evaluation as a JSON object."""
        return to_json_object(self)


@torch.no_grad()
def evaluate_text(network: nn.Module, text: Batches) -> TextEvaluation:
    """Evaluate a network on a whole text, with its state carried from segment to segment."""
    was_training = network.training
    network.eval()
    total, words, state, labels = 0.0, 0, None, list[Tensor]()
    for batch in text.epoch(0):
        found = network(batch.inputs, None, None if batch.starts else state)
        state = found.state
        total += LANGUAGE.sum_scores(found.logits, batch.labels)
        words += len(batch)
        labels.append(batch.labels)
    network.train(was_training)
    counts = torch.bincount(torch.cat(labels)).tolist()
    return TextEvaluation(words=words, loss=-total / words, guessing=unigram_perplexity(counts))
