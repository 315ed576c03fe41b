"""The batches of a search: who learns from which examples, and who is evaluated on which.

Weights learn on one part and architecture parameters on another. A third part is held out: the race and the comparison
with random architectures use it, since an architecture that was picked on some examples looks too good on the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from archloom.core.errors import SettingError, require
from archloom.core.seeds import derive_seed
from archloom.data.loader import Batches, Loader
from archloom.data.parts import DataParts, TextParts
from archloom.data.source import ImageData
from archloom.data.splits import Split
from archloom.data.text import TextData, TextLoader

if TYPE_CHECKING:  # the spec has settings of this module's callers
    from archloom.searches.spec import SearchSpec

EVALUATION_BATCH = 250
MOST_HELD_OUT = 2000  # validation images that the race uses alone, and no more than half
HELD_OUT_SHARE = 4  # of the validation text, one part in so many is held out
JUDGE_COLUMNS = 10  # of a text that paths are evaluated on: batch statistics need some


@dataclass(frozen=True)
class RaceBatches:
    """What contestants of the race learn from, augmented and as it is, and what they are evaluated on."""

    train: Batches
    plain: Batches
    held_out: Batches


class SearchLoaders(ABC):
    """The batches of one search."""

    @abstractmethod
    def train(self) -> Batches:
        """Return what weights learn from."""

    @abstractmethod
    def valid(self) -> Batches:
        """Return what architecture parameters learn from."""

    @abstractmethod
    def evaluation(self) -> Batches:
        """Return what paths are evaluated on during the search."""

    @abstractmethod
    def comparison(self) -> Batches:
        """Return what the result is compared with random architectures on: nothing learned from it."""

    @abstractmethod
    def race(self) -> RaceBatches:
        """Return the batches of the finalist race."""

    @abstractmethod
    def score(self) -> tuple[Batches, Batches]:
        """Return what a trial of a black-box search learns from, and what it is evaluated on."""


class ImageLoaders(SearchLoaders):
    """Batches of images: the training images are split at random."""

    def __init__(self, spec: SearchSpec, data: ImageData, device: torch.device) -> None:
        self._spec, self._settings, self._data, self._device = spec, spec.search, data, device
        assert isinstance(spec.data, DataParts), "the spec is for images"
        self._parts = spec.data

    def train(self) -> Loader:
        """Return augmented images of the training part."""
        return self._loader(self._search_split().train, "train")

    def valid(self) -> Loader:
        """Return augmented images of the validation part, without those held out."""
        return self._loader(self._search_split().valid, "valid", batch_size=self._settings.valid_batch_size)

    def evaluation(self) -> Loader:
        """Return some images of the validation part as they are."""
        return self._whole_batches(self._search_split().valid[: self._settings.evaluation_images], "evaluation 0")

    def comparison(self) -> Loader:
        """Return some of the images held out."""
        return self._whole_batches(self._held_out[: self._settings.evaluation_images], "evaluation 1")

    def race(self) -> RaceBatches:
        """Return all images that are not held out, and those that are."""
        settings, split = self._spec.race, self._search_split()
        side = min(self._data.resolution)
        if settings.shrink > side:
            raise SettingError(f"race.shrink must be at most the side of the images, {side}, got {settings.shrink}")
        images = torch.cat([split.train, split.valid])
        return RaceBatches(
            self._loader(images, "finalists", batch_size=settings.batch_size),
            self._loader(images, "finalists", batch_size=settings.batch_size, augmented=False),
            self._whole_batches(self._held_out, "finalists' judge"),
        )

    def score(self) -> tuple[Loader, Loader]:
        """Return both parts of the split."""
        split = self._split
        return (
            self._loader(split.train, "train"),
            self._loader(split.valid, "valid", batch_size=EVALUATION_BATCH, augmented=False, drop_last=False),
        )

    @cached_property
    def _split(self) -> Split:
        return self._parts.parts(len(self._data.train))

    @cached_property
    def _held_out(self) -> torch.Tensor:
        """Return the validation images that neither weights nor architecture parameters learn on."""
        valid = self._split.valid
        most = self._spec.race.held_out or MOST_HELD_OUT
        return valid[len(valid) - min(most, len(valid) // 2) :]

    def _search_split(self) -> Split:
        """Return the images of the search: all but those that are held out."""
        valid = self._split.valid
        return Split(self._split.train, valid[: len(valid) - len(self._held_out)])

    def _loader(
        self, indices: torch.Tensor, purpose: str, *, batch_size: int = 0, augmented: bool = True, **options: Any
    ) -> Loader:
        augment = self._data.augment if augmented else self._data.augment.for_evaluation()
        if purpose == "train" and self._settings.cutout is not None:
            augment = replace(augment, cutout=self._settings.cutout)
        return Loader(
            self._data.train,
            indices,
            batch_size=batch_size or self._settings.batch_size,
            mean=self._data.mean,
            std=self._data.std,
            augment=augment,
            seed=derive_seed(self._spec.seed, purpose),
            device=self._device,
            channels_last=self._settings.channels_last,
            workers=self._spec.machine.loader_threads,
            **options,
        )

    def _whole_batches(self, images: torch.Tensor, purpose: str) -> Loader:
        batches = -(-len(images) // EVALUATION_BATCH)
        return self._loader(images, purpose, batch_size=len(images) // batches, augmented=False)


class TextLoaders(SearchLoaders):
    """Batches of text: weights read the training text, architecture parameters the beginning of the validation text.

    The end of the validation text is held out. Every stream has its own name, and so its own carried state.
    """

    def __init__(self, spec: SearchSpec, data: TextData, device: torch.device) -> None:
        self._spec, self._settings, self._data, self._device = spec, spec.search, data, device
        assert isinstance(spec.data, TextParts), "the spec is for text"
        self._parts = spec.data

    def train(self) -> TextLoader:
        """Return the training text."""
        return self._loader(self._train, "train", columns=self._settings.batch_size)

    def valid(self) -> TextLoader:
        """Return the validation text without its end."""
        columns = self._settings.valid_batch_size or self._settings.batch_size
        return self._loader(self._learned, "valid", columns=columns)

    def evaluation(self) -> TextLoader:
        """Return the first words of the validation text."""
        return self._judge(self._learned[: self._settings.evaluation_images], "evaluation")

    def comparison(self) -> TextLoader:
        """Return the first words that are held out."""
        return self._judge(self._held_out[: self._settings.evaluation_images], "comparison")

    def race(self) -> RaceBatches:
        """Return the training text, and the words that are held out."""
        require({f"race.shrink must be 1 for text, got {self._spec.race.shrink}": self._spec.race.shrink == 1})
        train = self._loader(self._train, "finalists", columns=self._spec.race.batch_size)
        return RaceBatches(train, train, self._judge(self._held_out, "finalists held out"))

    def score(self) -> tuple[TextLoader, TextLoader]:
        """Return the training text, and the whole validation text."""
        return self.train(), self._judge(self._valid, "scores")

    @property
    def _train(self) -> torch.Tensor:
        return self._data.train[: self._parts.train_words]

    @property
    def _valid(self) -> torch.Tensor:
        return self._data.valid[: self._parts.valid_words]

    @property
    def _learned(self) -> torch.Tensor:
        return self._valid[: len(self._valid) - self._count_held_out()]

    @property
    def _held_out(self) -> torch.Tensor:
        return self._valid[len(self._valid) - self._count_held_out() :]

    def _count_held_out(self) -> int:
        most = self._spec.race.held_out or len(self._valid) // HELD_OUT_SHARE
        return max(2, min(most, len(self._valid) // 2))

    def _loader(self, tokens: torch.Tensor, stream: str, *, columns: int) -> TextLoader:
        return TextLoader(
            tokens,
            columns=columns,
            segment=self._parts.segment,
            lengths=self._parts.lengths,
            stream=stream,
            seed=derive_seed(self._spec.seed, stream),
            device=self._device,
        )

    def _judge(self, tokens: torch.Tensor, stream: str) -> TextLoader:
        """Return a text to evaluate on, in whole segments; a short one has fewer columns, or shorter segments."""
        segment = self._parts.segment
        columns = max(2, min(JUDGE_COLUMNS, len(tokens) // (segment + 1)))
        length = max(1, min(segment, len(tokens) // columns - 1))
        return TextLoader(tokens, columns=columns, segment=length, stream=stream, device=self._device)
