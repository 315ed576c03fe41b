"""The generated strokes: the same every time, balanced, and separable by their class."""

from __future__ import annotations

import hashlib

import pytest
import torch

from archloom.data.source import ImageData
from archloom.data.strokes import CLASSES, SIDE, TEST_IMAGES, TRAIN_IMAGES, strokes


@pytest.fixture(scope="module")
def data() -> ImageData:
    return strokes()


def test_sizes_and_classes(data: ImageData) -> None:
    assert data.test is not None
    assert (len(data.train), len(data.test)) == (TRAIN_IMAGES, TEST_IMAGES)
    assert data.train.shape == data.test.shape == (1, SIDE, SIDE)
    labels = torch.cat([data.train.labels, data.test.labels])
    assert torch.bincount(labels, minlength=CLASSES).tolist() == [(TRAIN_IMAGES + TEST_IMAGES) // CLASSES] * CLASSES


def test_two_calls_return_the_same_images(data: ImageData) -> None:
    every = torch.arange(TRAIN_IMAGES)
    first, second = (hashlib.sha256(one.train.fetch(every).numpy().tobytes()).digest() for one in (data, strokes()))
    assert first == second


def test_global_random_state_plays_no_part(data: ImageData) -> None:
    before = torch.random.get_rng_state()
    strokes()
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_class_is_the_same_shape_in_any_rotation(data: ImageData) -> None:
    """The ink of a class varies less than between classes, whichever way a shape is turned."""
    images = data.train.fetch(torch.arange(TRAIN_IMAGES)).float()
    ink = images.sum(dim=(1, 2, 3))
    means = torch.stack([ink[data.train.labels == label].mean() for label in range(CLASSES)])
    errors = torch.stack([ink[data.train.labels == label].std() / 1000**0.5 for label in range(CLASSES)])
    assert float(means.std() / errors.mean()) > 10
    assert len({bytes(image.numpy().tobytes()) for image in images[:500]}) == 500
