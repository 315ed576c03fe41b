"""What the size of a network depends on, known of published data sets without reading them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Facts:
    """What the size of a network depends on: classes and shape of images, or the words of a text."""

    classes: int = 0
    image_shape: tuple[int, ...] = ()  # C, H, W
    words: int = 0


class DataSet(ABC):
    """What every data set is, of images or of text."""

    name: str

    @property
    @abstractmethod
    def facts(self) -> Facts:
        """Return what the size of a network depends on."""

    @property
    @abstractmethod
    def amount(self) -> int:
        """Return how much there is to learn from, in pixels of training images or their like."""

    @property
    def side(self) -> int:
        """Return the shorter side of an image; 0 where there are none."""
        return 0

    @abstractmethod
    def check(self) -> Self:
        """Return the data set itself; raise a DataError where no search can use it."""


PUBLISHED = ("cifar10", "cifar100", "ptb", "wikitext2")  # are read from the data folder


def describe_missing_folder(name: str) -> str:
    """Return what is wrong where a data set needs a data folder and there is none."""
    return f"data set '{name}' needs a data folder; give --data-dir or set ARCHLOOM_DATA"


FACTS = {  # of published data sets: looking scores up in a table does not need the images
    "digits": Facts(classes=10, image_shape=(1, 8, 8)),
    "strokes": Facts(classes=10, image_shape=(1, 16, 16)),
    "cifar10": Facts(classes=10, image_shape=(3, 32, 32)),
    "cifar100": Facts(classes=100, image_shape=(3, 32, 32)),
}
