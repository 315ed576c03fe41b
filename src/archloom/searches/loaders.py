"""The batches of a search: who learns from which examples, and who is evaluated on which.

Weights learn on one part and architecture parameters on another. A third part is held out: the race and the comparison
with random architectures use it, since an architecture that was picked on some examples looks too good on the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from archloom.core.errors import SettingError
from archloom.core.seeds import derive_seed
from archloom.data.loader import Batches, Loader
from archloom.data.source import ImageData
from archloom.data.splits import Split

if TYPE_CHECKING:  # the spec has settings of this module's callers
    from archloom.searches.spec import SearchSpec

EVALUATION_BATCH = 250
MOST_HELD_OUT = 2000  # validation images that the race uses alone, and no more than half


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
    def race(self) -> tuple[Batches, Batches]:
        """Return what contestants of the race learn from, and what they are evaluated on."""

    @abstractmethod
    def score(self) -> tuple[Batches, Batches]:
        """Return what a trial of a black-box search learns from, and what it is evaluated on."""


class ImageLoaders(SearchLoaders):
    """Batches of images: the training images are split at random."""

    def __init__(self, spec: SearchSpec, data: ImageData, device: torch.device) -> None:
        self._spec, self._settings, self._data, self._device = spec, spec.search, data, device

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

    def race(self) -> tuple[Loader, Loader]:
        """Return all images that are not held out, and those that are."""
        settings, split = self._spec.race, self._search_split()
        side = min(self._data.resolution)
        if settings.shrink > side:
            raise SettingError(f"race.shrink must be at most the side of the images, {side}, got {settings.shrink}")
        images = torch.cat([split.train, split.valid])
        return (
            self._loader(images, "finalists", batch_size=settings.batch_size),
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
        return self._spec.data.parts(len(self._data.train))

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
