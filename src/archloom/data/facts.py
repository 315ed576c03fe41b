"""What the size of a network depends on, known of published data sets without reading them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Facts:
    """What the size of a network depends on: classes and shape of images, or the words of a text."""

    classes: int = 0
    image_shape: tuple[int, ...] = ()  # C, H, W
    words: int = 0


FACTS = {  # of published data sets: looking scores up in a table does not need the images
    "digits": Facts(classes=10, image_shape=(1, 8, 8)),
    "strokes": Facts(classes=10, image_shape=(1, 16, 16)),
    "cifar10": Facts(classes=10, image_shape=(3, 32, 32)),
    "cifar100": Facts(classes=100, image_shape=(3, 32, 32)),
}
