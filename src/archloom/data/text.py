"""Text as numbers: words, the streams that a network reads in parallel, and batches of them.

A text is cut into columns of equal length, which are read at the same time. A batch is a segment of all columns. The
next batch continues where it ended, so a network carries its state on. A batch stays a function of (seed, epoch, step).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Self

import torch
from torch import Tensor

from archloom.core.errors import DataError, SettingError, require
from archloom.data.facts import DataSet, Facts
from archloom.data.loader import Batch, Batches

Lengths = Literal["fixed", "darts", "drawn"]

FEWEST_WORDS = 2  # that a vocabulary has: with one there is nothing to predict
SHORT = 0.05  # the share of segments that are half as long
SPREAD, SHORTEST, LONGER = 5.0, 5, 20  # of drawn lengths: deviation, the least, the most above the usual one
PIXELS_OF_A_WORD = 20  # that take about as long to learn from
EPOCH = 2**32  # places between two epochs of a stream


@dataclass(frozen=True, kw_only=True, eq=False)
class TextData(DataSet):
    """A text in three parts, as numbers of words.

    Attributes:
        name: the name of the data set.
        words: the vocabulary; the number of a word is its place.
        train: what weights learn from, int64 [n].
        valid: what architecture parameters learn from, and what picks the best epoch.
        test: read once, at the very end; None where there is none.
        tokens: how a line was split: at `spaces`, or into `words` and punctuation.

    Examples:
        >>> import archloom, torch
        >>> train, valid = torch.tensor([0, 1] * 4), torch.tensor([1, 0])
        >>> data = archloom.TextData(name="ab", words=("a", "b"), train=train, valid=valid)
        >>> data.facts.words
        2
    """

    name: str
    words: tuple[str, ...]
    train: Tensor
    valid: Tensor
    test: Tensor | None = None
    tokens: str = "spaces"

    @property
    def amount(self) -> int:
        """Return the number of training words, each worth some pixels of an image."""
        return PIXELS_OF_A_WORD * len(self.train)

    @property
    def facts(self) -> Facts:
        """Return what the size of a network depends on."""
        return Facts(words=len(self.words))

    @property
    def parts(self) -> dict[str, Tensor]:
        """Return the parts that there are, by name."""
        known = {"train": self.train, "valid": self.valid}
        return known if self.test is None else {**known, "test": self.test}

    def check(self) -> Self:
        """Return the data set itself; raise a DataError where no search can use it."""
        if len(self.words) < FEWEST_WORDS:
            raise DataError(
                f"data set '{self.name}' must have at least {FEWEST_WORDS} different words, got {len(self.words)}; "
                "use a longer text or a larger data.vocabulary"
            )
        for part, tokens in self.parts.items():
            if tokens.dtype != torch.int64 or tokens.ndim != 1:
                kind = f"{str(tokens.dtype).removeprefix('torch.')} {list(tokens.shape)}"
                raise DataError(f"the {part} text of data set '{self.name}' must be int64 [n], got {kind}")
            if len(tokens) < 2:
                raise DataError(f"the {part} text of data set '{self.name}' needs at least 2 words, got {len(tokens)}")
            lowest, highest = int(tokens.min()), int(tokens.max())
            if lowest < 0 or highest >= len(self.words):
                raise DataError(
                    f"words of the {part} text of data set '{self.name}' must lie in 0..{len(self.words) - 1}, "
                    f"got {lowest if lowest < 0 else highest}"
                )
        return self


class TextLoader(Batches):
    """Segments of a text that is read in columns, one after the other.

    Args:
        tokens: the numbers of the words, int64 [n].
        columns: pieces of the text that are read in parallel.
        segment: words of a column in a batch, or the mean of drawn lengths.
        stream: the name of the stream; a network carries one state for each.
        lengths: `fixed`: all segments alike; `darts`: one in twenty half as long; `drawn`: normally distributed, too.
        seed: of drawn lengths.
        whole: leave out the words after the last whole segment, so that all epochs have equally many steps.
        device: where the batches are.

    Raises:
        SettingError: the text is too short for one segment.

    Examples:
        >>> import archloom, torch
        >>> loader = archloom.TextLoader(torch.arange(21), columns=2, segment=3, stream="train")
        >>> batch = loader.batch(0, 1)
        >>> batch.inputs.tolist(), batch.labels.tolist(), batch.starts
        ([[3, 13], [4, 14], [5, 15]], [4, 14, 5, 15, 6, 16], False)
    """

    def __init__(
        self,
        tokens: Tensor,
        *,
        columns: int,
        segment: int,
        stream: str,
        lengths: Lengths = "fixed",
        seed: int = 0,
        whole: bool = True,
        device: torch.device = torch.device("cpu"),
    ) -> None:
        require(
            {
                f"the number of columns must be at least 1, got {columns}": columns >= 1,
                f"data.segment must be at least 1, got {segment}": segment >= 1,
            }
        )
        rows = len(tokens) // columns
        needed = 1 + (segment if whole and lengths == "fixed" else 1)
        if rows < needed:
            raise SettingError(
                f"the {stream} text of {len(tokens):,} words is too short for {columns} columns of {needed} words; use "
                "a smaller batch_size or data.segment, or a longer text"
            )
        self._table = tokens[: rows * columns].view(columns, rows).t().contiguous().to(device)
        self.columns, self.segment, self.stream, self.lengths = columns, segment, stream, lengths
        self.seed, self.whole = seed, whole
        self._segments = lru_cache(2)(self._draw_segments)
        self._ends: list[int] = []  # batches of all epochs up to each, as far as they were asked for

    @property
    def rows(self) -> int:
        """Return the words of a column that are predicted in one epoch, at most."""
        return len(self._table) - 1

    @property
    def examples(self) -> int:
        """Return the words that are predicted in one epoch."""
        return self.columns * (self.steps * self.segment if self.whole and self.lengths == "fixed" else self.rows)

    @property
    def batch_size(self) -> int:
        """Return the words that are predicted in one usual batch."""
        return self.columns * min(self.segment, self.rows)

    @property
    def steps(self) -> int:
        """Return the number of batches of the first epoch; of every one, where lengths are fixed."""
        return self.steps_of(0)

    def steps_of(self, epoch: int) -> int:
        """Return the number of batches of an epoch."""
        return len(self._segments(epoch if self.lengths != "fixed" else 0))

    def locate(self, position: int) -> tuple[int, int]:
        """Return the epoch of a batch and its step; epochs differ in length where lengths are drawn."""
        if self.lengths == "fixed":
            return super().locate(position)
        while not self._ends or self._ends[-1] <= position:
            self._ends.append((self._ends[-1] if self._ends else 0) + self.steps_of(len(self._ends)))
        epoch = bisect_right(self._ends, position)
        return epoch, position - (self._ends[epoch - 1] if epoch else 0)

    def batch(self, epoch: int, step: int) -> Batch:
        """Return the segment of this step; the same whenever it is asked for."""
        start, length = self._segments(epoch if self.lengths != "fixed" else 0)[step]
        inputs, targets = self._table[start : start + length], self._table[start + 1 : start + 1 + length]
        place, rate = epoch * EPOCH + step, 1.0 if self.lengths == "fixed" else length / self.segment
        return Batch(inputs, targets.reshape(-1), stream=self.stream, place=place, starts=step == 0, rate=rate)

    def _draw_segments(self, epoch: int) -> tuple[tuple[int, int], ...]:
        """Return start and length of every segment of an epoch."""
        if self.lengths == "fixed":
            starts = range(0, self.rows - self.segment + 1 if self.whole else self.rows, self.segment)
            return tuple((start, min(self.segment, self.rows - start)) for start in starts)
        generator = _generator(self.seed, epoch)
        segments, start = [], 0
        while start < self.rows:
            length = min(self._draw_length(generator), self.rows - start)
            segments.append((start, length))
            start += length
        return tuple(segments)

    def _draw_length(self, generator: torch.Generator) -> int:
        short = float(torch.rand((), generator=generator, dtype=torch.float64)) < SHORT
        usual = self.segment / 2 if short else float(self.segment)
        if self.lengths == "darts":
            return max(1, int(usual))
        drawn = usual + SPREAD * float(torch.randn((), generator=generator, dtype=torch.float64))
        return min(self.segment + LONGER, max(SHORTEST, int(drawn)))


def _generator(seed: int, epoch: int) -> torch.Generator:
    digest = hashlib.blake2b(f"lengths {seed} {epoch}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def count_words(tokens: Tensor, words: int) -> Sequence[int]:
    """Return how often every word occurs."""
    counts: list[int] = torch.bincount(tokens, minlength=words).tolist()
    return counts
