"""Score texts with a trained language model, line by line, or continue them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional as F

from archloom.core.errors import DataError, SettingError
from archloom.data.corpora import END, UNKNOWN, read_text, split_spaces, split_words
from archloom.export.text import DeployedText
from archloom.retrainings.best_model import find_best_model
from archloom.retrainings.model_file import load_model


@dataclass(frozen=True)
class ScoredLine:
    """One line of a text, and how probable it was."""

    line: str
    words: int  # the end of the line among them
    perplexity: float
    unknown: int  # words that the model does not know


def is_text_model(given: Path) -> bool:
    """Return whether a path is a language model; False for anything that is no model file."""
    if given.suffix == ".onnx":
        return False
    try:
        return bool(load_model(find_best_model(given).path)[0].words)
    except SettingError:
        return False


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file that have words; a DataError says what is wrong with it."""
    return [line for line in read_text(path) if line.strip()]


class TextModel:
    """A language model that reads text as its training data were read."""

    def __init__(self, model: DeployedText) -> None:
        self._model, self._words = model, model.card.words
        self._numbers = {word: number for number, word in enumerate(self._words)}
        self._split = split_words if model.card.tokens == "words" else split_spaces

    @classmethod
    def load(cls, given: Path, *, plugins: bool = False) -> TextModel:
        """Return the model of a run or of a model file."""
        return cls(DeployedText.load(find_best_model(given).path, plugins=plugins))

    def _to_numbers(self, line: str) -> tuple[list[int], int]:
        """Return the numbers of a line's words, and how many of them are unknown."""
        words = self._split(line)
        strange = [word for word in words if word not in self._numbers]
        if strange and UNKNOWN not in self._numbers:
            raise DataError(
                f"the model does not know the word '{strange[0][:40]}', and has no {UNKNOWN} for it; use words of its "
                "training text"
            )
        return [self._numbers.get(word, self._numbers.get(UNKNOWN, 0)) for word in words], len(strange)

    @torch.no_grad()
    def score(self, lines: Sequence[str]) -> list[ScoredLine]:
        """Return the perplexity of every line; the state is carried from line to line, as in training."""
        end = self._numbers.get(END, 0)
        state, last, found = self._model.zeros(1), end, []
        for line in lines:
            numbers, unknown = self._to_numbers(line)
            targets = [*numbers, end]
            inputs = torch.tensor([last, *numbers])[:, None]
            read = self._model.network(inputs, None, state)
            state, last = read.state, end
            loss = float(F.cross_entropy(read.logits, torch.tensor(targets)))
            found.append(ScoredLine(line, len(targets), math.exp(loss), unknown))
        return found

    @torch.no_grad()
    def continue_text(self, text: str, count: int, *, seed: int = 0) -> str:
        """Return a text and so many words after it, each sampled by its probability."""
        generator = torch.Generator().manual_seed(seed)
        numbers, _ = self._to_numbers(text)
        inputs = torch.tensor([self._numbers.get(END, 0), *numbers])[:, None]
        read = self._model.network(inputs, None, self._model.zeros(1))
        logits, state, added = read.logits[-1:], read.state, list[str]()
        for _ in range(count):
            probabilities = logits[0].double().softmax(dim=0)
            number = int(torch.multinomial(probabilities, 1, generator=generator))
            added.append(self._words[number])
            logits, state = self._model(torch.tensor([number]), state)
        return " ".join([text.strip(), *added]).strip()
