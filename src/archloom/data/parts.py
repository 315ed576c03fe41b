"""Which examples train and which validate: the settings of every data set, in addition to its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from annotated_doc import Doc

from archloom.core.errors import DataError, require
from archloom.data.splits import Split, limit_split, nb201_split, random_split
from archloom.data.text import Lengths

NB201_SPLIT = "cifar-split.txt"
LONGEST_SEGMENT = 10_000  # words; beyond, a file asks for more memory than anybody has


@dataclass(frozen=True, kw_only=True)
class DataParts:
    """Where the data are, and how training images are divided; a search and a retraining have their own defaults."""

    directory: Annotated[Path | None, Doc("the data folder; else $ARCHLOOM_DATA")] = None
    split: Literal["random", "nb201", "none"]
    split_seed: Annotated[int, Doc("apart from the run's seed, so that runs of all seeds see the same split")] = 0
    train_fraction: float
    train_images: Annotated[int | None, Doc("take only so many of the training part")] = None
    valid_images: Annotated[int | None, Doc("take only so many of the validation part")] = None

    def __post_init__(self) -> None:
        limits = {"train_images": self.train_images, "valid_images": self.valid_images}
        require(
            {
                f"data.split_seed must lie in 0..2^63-1, got {self.split_seed}": 0 <= self.split_seed < 2**63,
                f"data.train_fraction must lie in (0, 1), got {self.train_fraction}": 0 < self.train_fraction < 1,
                **{f"data.{name} must be at least 2, got {n}": n is None or n >= 2 for name, n in limits.items()},
            }
        )

    def parts(self, count: int) -> Split:
        """Split `count` training images; the second part is empty with split `none`."""
        if self.split == "none":
            divided = Split(torch.arange(count), torch.arange(0))
        elif self.split == "nb201":
            divided = nb201_split(self._split_file())
        else:
            divided = random_split(count, train_fraction=self.train_fraction, seed=self.split_seed)
        return limit_split(divided, train=self.train_images, valid=None if self.split == "none" else self.valid_images)

    def _split_file(self) -> Path:
        if self.directory is None:
            raise DataError(f"data.split 'nb201' needs {NB201_SPLIT} in the data folder; pass --data-dir")
        candidates = [self.directory / part / NB201_SPLIT for part in ("nasbench201", "nb201", "")]
        return next((path for path in candidates if path.is_file()), candidates[0])


@dataclass(frozen=True, kw_only=True)
class TextParts:
    """Where a text is, and how it is read; a search and a retraining have their own defaults."""

    directory: Annotated[Path | None, Doc("the data folder; else $ARCHLOOM_DATA")] = None
    segment: Annotated[int, Doc("words of a column in a batch, through which gradients flow")] = 35
    lengths: Lengths
    train_words: Annotated[int | None, Doc("take only so many of the training text")] = None
    valid_words: Annotated[int | None, Doc("take only so many of the validation text")] = None

    def __post_init__(self) -> None:
        limits = {"train_words": self.train_words, "valid_words": self.valid_words}
        require(
            {
                f"data.segment must lie in 1..{LONGEST_SEGMENT}, got {self.segment}": (
                    1 <= self.segment <= LONGEST_SEGMENT
                ),
                **{f"data.{name} must be at least 2, got {n}": n is None or n >= 2 for name, n in limits.items()},
            }
        )
