"""Handwritten digits of 8x8 pixels (Alpaydin & Kaynak, 1998), which come with scikit-learn: no download is needed."""

from __future__ import annotations

from pathlib import Path

import torch

from archloom.data.augment import Augment
from archloom.data.source import ImageData, InMemory, measure_statistics
from archloom.data.splits import hold_out

BRIGHTEST = 16  # of the pixels as published
TEST_FRACTION = 0.2


def digits(directory: Path | None = None) -> ImageData:
    """Load 1,797 grey images in 10 classes; `directory` is not used."""
    from sklearn.datasets import load_digits  # half a second that other data sets should not wait for

    published = load_digits()
    images = torch.from_numpy(published.images).to(torch.float32)[:, None] / BRIGHTEST
    labels = torch.from_numpy(published.target)
    kept, held = hold_out(labels, fraction=TEST_FRACTION)
    train = InMemory(images[kept], labels[kept])
    mean, std = measure_statistics(train)
    return ImageData(
        name="digits",
        train=train,
        classes=tuple(str(name) for name in published.target_names),
        test=InMemory(images[held], labels[held]),
        mean=mean,
        std=std,
        augment=Augment(crop_padding=1),  # no flip: a mirrored digit is another sign
    )
