"""The generated strokes: a pure function of the seed, balanced, and alike in everything but their figures."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from archloom.data.source import ImageData, Source
from archloom.data.strokes import (
    CLASSES,
    FIGURES,
    PAIRS,
    SIDE,
    TEST_IMAGES,
    TRAIN_IMAGES,
    draw_images,
    strokes,
)

LABELS = torch.arange(200) % CLASSES


@pytest.fixture(scope="module")
def data() -> ImageData:
    return strokes()


def images_of(source: Source | None) -> Tensor:
    assert source is not None
    return source.fetch(torch.arange(len(source)))


def images_from(seed: int, labels: Tensor = LABELS) -> Tensor:
    return draw_images(labels, torch.Generator().manual_seed(seed))


def test_sizes_and_classes(data: ImageData) -> None:
    assert data.test is not None
    assert (len(data.train), len(data.test)) == (TRAIN_IMAGES, TEST_IMAGES)
    assert data.train.shape == data.test.shape == (1, SIDE, SIDE)
    labels = torch.cat([data.train.labels, data.test.labels])
    assert torch.bincount(labels, minlength=CLASSES).tolist() == [(TRAIN_IMAGES + TEST_IMAGES) // CLASSES] * CLASSES


def test_every_pair_of_figures_is_a_class(data: ImageData) -> None:
    assert len(FIGURES) == 5 and len(set(PAIRS)) == len(data.classes) == CLASSES == 10
    assert data.classes[0] == "triangle and cross"
    assert data.classes[-1] == "cup and tee"


def test_labels_are_mixed_and_nearly_balanced_in_training(data: ImageData) -> None:
    counts = torch.bincount(data.train.labels, minlength=CLASSES)
    expected = TRAIN_IMAGES / CLASSES
    assert counts.min() > 0.9 * expected and counts.max() < 1.1 * expected
    assert len(set(data.train.labels[:10].tolist())) < 10  # in order there would be one of each


def test_two_calls_return_the_same_images(data: ImageData) -> None:
    again = strokes()
    assert torch.equal(images_of(data.train), images_of(again.train))
    assert torch.equal(images_of(data.test), images_of(again.test))


def test_images_follow_from_the_seed() -> None:
    assert torch.equal(images_from(3), images_from(3))
    same = (images_from(3) == images_from(4)).flatten(1).all(dim=1)
    assert not same.any()


def test_global_random_state_plays_no_part() -> None:
    before = torch.random.get_rng_state()
    strokes()
    assert torch.equal(torch.random.get_rng_state(), before)


def test_no_image_occurs_twice(data: ImageData) -> None:
    every = torch.cat([images_of(data.train), images_of(data.test)])
    assert len({image.numpy().tobytes() for image in every}) == TRAIN_IMAGES + TEST_IMAGES


def test_bytes_use_their_range(data: ImageData) -> None:
    images = images_of(data.train)
    assert images.dtype == torch.uint8
    assert (int(images.min()), int(images.max())) == (0, 255)
    assert 20 < images.float().mean() < 70  # strokes on a dark ground


def test_training_and_test_images_are_of_one_kind(data: ImageData) -> None:
    train, test = images_of(data.train).float(), images_of(data.test).float()
    spread = train.mean(dim=(1, 2, 3)).std()
    assert (train.mean() - test.mean()).abs() < 5 * spread / TEST_IMAGES**0.5


def test_a_class_has_its_own_amount_of_ink(data: ImageData) -> None:
    """A triangle and a zigzag are longer than a cross and a tee; noise and clutter are the same for all."""
    ink = images_of(data.train).float().mean(dim=(1, 2, 3))
    of_class = {name: ink[data.train.labels == number].mean() for number, name in enumerate(data.classes)}
    assert of_class["triangle and zigzag"] > 1.1 * of_class["cross and tee"]


def test_figures_lie_on_any_side() -> None:
    """Averaged over many images, no half of the picture is brighter than another by more than a few percent."""
    mean = images_from(0, torch.zeros(2000, dtype=torch.int64)).float().mean(dim=(0, 1))
    halves = torch.stack([mean[:8].mean(), mean[8:].mean(), mean[:, :8].mean(), mean[:, 8:].mean()])
    assert halves.max() < 1.05 * halves.min()
